# SPDX-License-Identifier: Apache-2.0
"""Kernels that add up products of bytes or bfloat16, and what they compute, by NumPy."""

import ml_dtypes
import numpy as np

from tvm import te, tirx
from tvm.target import Target
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "bfloat16": (-8, 8)}
"""The least and the greatest values. Sums of products of integers of bfloat16 are exact."""


def without_tiles(target):
    """A target whose products are of vectors: matrix tiles have tests of their own."""
    names = [str(name) for name in target.attrs.get("mattr", []) if "amx" not in str(name)]
    return Target({**target.export(), "mattr": [*names, "-amx-tile"]})


def sum_of(one, other, axes):
    """The sum of the products of two elements, in a wider type."""
    wide = "float32" if str(one.dtype) == "bfloat16" else "int32"
    return te.sum(one.astype(wide) * other.astype(wide), axes)


def dense(rows, columns, depth, types=("uint8", "int8"), by_column=False, free=False):
    """A product with weights of shape (columns, depth), or (depth, columns)."""
    a = te.placeholder((rows, depth), types[0], name="a")
    shape = (depth, columns) if by_column else (columns, depth)
    w = te.placeholder(shape, types[1], name="w")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute(
        (rows, columns),
        lambda i, j: sum_of(a[i, k], w[k, j] if by_column else w[j, k], k),
        name="c",
    )
    function = te.create_prim_func([a, w, c])
    module = module_of(function)
    if free:  # As in a model: who calls a kernel by itself passes weights as they are declared.
        module["main"] = module["main"].with_attr("layout_free_buffers", [1])
    return module


def packed_dense(rows, columns, depth, shape, where, types=("uint8", "int8")):
    """A product with weights of any shape; `where` gives the indices of a column and a step."""
    a = te.placeholder((rows, depth), types[0], name="a")
    w = te.placeholder(shape, types[1], name="w")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: sum_of(a[i, k], w[where(j, k)], k), name="c")
    return module_of(te.create_prim_func([a, w, c]))


def gram(rows, depth):
    """A product of a matrix with itself."""
    a = te.placeholder((rows, depth), "int8", name="a")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, rows), lambda i, j: sum_of(a[i, k], a[j, k], k), name="c")
    return module_of(te.create_prim_func([a, c]))


def requantized(rows, columns, depth):
    """A product, a bias, and rounding to bytes."""
    a = te.placeholder((rows, depth), "uint8", name="a")
    w = te.placeholder((columns, depth), "int8", name="w")
    bias = te.placeholder((columns,), "int32", name="bias")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: sum_of(a[i, k], w[j, k], k), name="c")
    d = te.compute((rows, columns), lambda i, j: c[i, j] + bias[j], name="d")

    def rounded(i, j):
        scaled = tirx.round(d[i, j].astype("float32") * 0.0078125)
        return te.max(te.min(scaled, 255.0), 0.0).astype("uint8")

    return module_of(te.create_prim_func([a, w, bias, te.compute((rows, columns), rounded)]))


def batch_matmul(batch, rows, columns, depth):
    """A product of each of some matrices with one of its own."""
    a = te.placeholder((batch, rows, depth), "uint8", name="a")
    w = te.placeholder((batch, depth, columns), "int8", name="w")
    k = te.reduce_axis((0, depth), "k")
    shape = (batch, rows, columns)
    c = te.compute(shape, lambda n, i, j: sum_of(a[n, i, k], w[n, k, j], k), name="c")
    return module_of(te.create_prim_func([a, w, c]))


def convolution(size, inputs, outputs, groups=1, stride=1, types=("uint8", "int8")):
    """A padded 3x3 convolution, in NHWC and HWIO."""
    own, made = inputs // groups, outputs // groups
    a = te.placeholder((1, size, size, inputs), types[0], name="a")
    w = te.placeholder((3, 3, own, outputs), types[1], name="w")
    zero = tirx.const(0.0 if types[0] == "bfloat16" else 0, types[0])

    def padded(n, y, x, c):
        is_inside = tirx.all(y >= 1, y <= size, x >= 1, x <= size)
        return tirx.if_then_else(is_inside, a[n, y - 1, x - 1, c], zero)

    pad = te.compute((1, size + 2, size + 2, inputs), padded, name="pad")
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in ((3, "ry"), (3, "rx"), (own, "rc")))
    sizes = ((size - 1) // stride + 1,) * 2

    def product(n, y, x, o):
        source = pad[n, y * stride + ry, x * stride + rx, o // made * own + rc]
        return sum_of(source, w[ry, rx, rc, o], [ry, rx, rc])

    c = te.compute((1, *sizes, outputs), product, name="c")
    return module_of(te.create_prim_func([a, w, c]))


def convolved(a, w, groups, stride):
    """What `convolution` computes."""
    size, outputs = a.shape[1], w.shape[3]
    own, made = w.shape[2], outputs // groups
    source = np.pad(a.astype("int64"), ((0, 0), (1, 1), (1, 1), (0, 0)))
    result = np.zeros((1, (size - 1) // stride + 1, (size - 1) // stride + 1, outputs), "int64")
    for group in range(groups):
        inside = slice(group * own, (group + 1) * own)
        outside = slice(group * made, (group + 1) * made)
        for y in range(3):
            for x in range(3):
                part = source[:, y : y + size : stride, x : x + size : stride, inside]
                result[..., outside] += part @ w[y, x, :, outside].astype("int64")
    return result


def values(generator, shape, dtype):
    """Random integers of a type, of which many are the least or the greatest one."""
    limits = LIMITS[dtype]
    found = generator.integers(limits[0], limits[1] + 1, shape)
    extreme = generator.random(shape) < 0.5
    found[extreme] = generator.choice(limits, shape)[extreme]
    return found.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
