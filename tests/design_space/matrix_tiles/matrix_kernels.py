# SPDX-License-Identifier: Apache-2.0
"""Matrix products, convolutions and attentions for tiles, and what they compute, by NumPy."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from tiles_stand_in import TILES

from tvm import te, tirx
from tvm_droplet_ms.model.kernels.attention.attention_compute import Masks, attention
from tvm_droplet_ms.model.kernels.attention.attention_packing import Extents
from tvm_droplet_ms.model.kernels.halves import half_convolution, tiled_matmul
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

LIMITS = {"uint8": (0, 256), "int8": (-128, 128), "bfloat16": (-8, 9)}
"""The least and greatest values. Sums of products of integers of bfloat16 are exact."""


@dataclass
class Case:
    """A kernel, its arguments and its result; ``tolerance``: 0 for exact."""

    name: str
    module: Any
    shapes: list[tuple[int, ...]]
    types: list[str]
    expected: Callable[..., Any]
    dtype: str = "int32"
    tolerance: float = 0.0

    def __str__(self) -> str:
        return self.name

    def arrays(self):
        generator = np.random.default_rng(0)
        return [values(generator, *each) for each in zip(self.shapes, self.types, strict=True)]


def values(generator, shape, dtype):
    if dtype == "float32":
        return generator.standard_normal(shape).astype(dtype)
    drawn = generator.integers(*LIMITS[dtype], shape)
    return drawn.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def sums_of(dtype):
    return "float32" if dtype == "bfloat16" else "int32"


def exact(array):
    """An array in integers that hold all sums."""
    return array.astype("float32").astype("int64")


def convolved(a, w, strides, padding, dilation):
    """The convolution of images in NHWC with weights in HWIO; padding: top, left, bottom, right."""
    top, left, bottom, right = padding
    padded = np.pad(exact(a), ((0, 0), (top, bottom), (left, right), (0, 0)))
    lines, rows = (
        (extent - (taps - 1) * apart - 1) // stride + 1
        for extent, taps, apart, stride in zip(
            padded.shape[1:3], w.shape, dilation, strides, strict=False
        )
    )
    result = np.zeros((len(a), lines, rows, w.shape[3]), "int64")
    for y, x in np.ndindex(w.shape[:2]):
        part = padded[:, y * dilation[0] :: strides[0], x * dilation[1] :: strides[1]]
        result += part[:, :lines, :rows] @ exact(w[y, x])
    return result


def dense_case(shared, own, rows=48, columns=96, depth=128):
    a, w = te.placeholder((rows, depth), shared, "a"), te.placeholder((depth, columns), own, "w")
    k, sums = te.reduce_axis((0, depth), "k"), sums_of(shared)
    c = te.compute(
        (rows, columns), lambda i, j: te.sum(a[i, k].astype(sums) * w[k, j].astype(sums), k), "c"
    )
    return Case(
        f"dense {rows}x{columns}x{depth} {shared} {own}",
        module_of(te.create_prim_func([a, w, c])),
        [(rows, depth), (depth, columns)],
        [shared, own],
        lambda a, w: exact(a) @ exact(w),
        sums,
    )


def requantized_case():
    a, w = te.placeholder((48, 64), "uint8", "a"), te.placeholder((64, 96), "int8", "w")
    k = te.reduce_axis((0, 64), "k")
    product = te.compute(
        (48, 96), lambda i, j: te.sum(a[i, k].astype("int32") * w[k, j].astype("int32"), k), "c"
    )

    def rounded(i, j):
        scaled = te.round(product[i, j].astype("float32") * tirx.const(0.0078125, "float32"))
        return te.max(te.min(scaled, 255.0), 0.0).astype("uint8")

    return Case(
        "requantized",
        module_of(te.create_prim_func([a, w, te.compute((48, 96), rounded, "d")])),
        [(48, 64), (64, 96)],
        ["uint8", "int8"],
        lambda a, w: np.clip(np.rint((exact(a) @ exact(w)) / 128), 0, 255).astype("uint8"),
        "uint8",
    )


def batched_case():
    a, w = te.placeholder((3, 32, 64), "int8", "a"), te.placeholder((3, 64, 48), "int8", "w")
    k = te.reduce_axis((0, 64), "k")
    c = te.compute(
        (3, 32, 48),
        lambda n, i, j: te.sum(a[n, i, k].astype("int32") * w[n, k, j].astype("int32"), k),
        "c",
    )
    return Case(
        "batched",
        module_of(te.create_prim_func([a, w, c])),
        [(3, 32, 64), (3, 64, 48)],
        ["int8", "int8"],
        lambda a, w: exact(a) @ exact(w),
    )


def matmul_case(shape, computed, dtype, own):
    """A product whose rows are padded; those of a sequence have an axis of one behind them."""
    a, w = te.placeholder(shape, dtype, "a"), te.placeholder((shape[-1], 32), own, "w")
    return Case(
        f"matmul of {shape} by {computed}",
        module_of(te.create_prim_func([a, w, tiled_matmul(a, w, computed)])),
        [shape, (shape[-1], 32)],
        [dtype, own],
        lambda a, w: exact(a) @ exact(w),
        sums_of(dtype),
    )


def convolution_case(size, inputs, outputs, kernel, types, *, stride=1, dilation=1, computed=None):
    a = te.placeholder((1, *size, inputs), types[0], "a")
    w = te.placeholder((kernel, kernel, inputs, outputs), types[1], "w")
    reach = dilation * (kernel - 1) + 1
    pads = [reach // 2] * 4
    geometry = [stride] * 2, pads, [dilation] * 2
    c = half_convolution(a, w, *geometry, computed)
    # What follows a convolution in a model.
    d = te.compute(c.shape, lambda *at: c[at] + tirx.const(1, c.dtype), "d")

    return Case(
        f"convolution {kernel}x{kernel} of {size} {inputs} to {outputs} stride {stride} "
        f"dilation {dilation} {types[0]} computed {computed}",
        module_of(te.create_prim_func([a, w, d])),
        [(1, *size, inputs), (kernel, kernel, inputs, outputs)],
        list(types),
        lambda a, w: convolved(a, w, *geometry) + 1,
        sums_of(types[0]),
    )


def attention_case(rows=50, columns=64, depth=64, width=48):
    batch = 2
    shapes = [(batch, rows, depth), (batch, depth, columns), (batch, columns, width)]
    q, k, v = (te.placeholder(s, "float32", n) for s, n in zip(shapes, "qkv", strict=True))
    extents = Extents((batch,), rows, columns, depth, width)
    elements = (lambda *at: q(*at), lambda *at: k(*at), lambda *at: v(*at))
    masks = Masks(1 / math.sqrt(depth))
    with TILES:
        out = attention(extents, *elements, masks, (0, 1, 2), halves=True)

    def expected(q, k, v):
        rounded = [each.astype(ml_dtypes.bfloat16).astype("float64") for each in (q, k, v)]
        scores = rounded[0] @ rounded[1] / math.sqrt(depth)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ rounded[2]

    return Case(
        f"attention {rows}x{columns}",
        module_of(te.create_prim_func([q, k, v, out])),
        shapes,
        ["float32"] * 3,
        expected,
        "float32",
        0.02,
    )


BYTES, HALVES = ("uint8", "int8"), ("bfloat16", "bfloat16")
CASES = [
    *(dense_case(shared, own) for shared in ("uint8", "int8") for own in ("uint8", "int8")),
    dense_case(*HALVES),
    dense_case("uint8", "int8", rows=26, columns=24, depth=36),
    dense_case(*HALVES, rows=22, columns=40, depth=24),
    requantized_case(),
    batched_case(),
    matmul_case((1, 19, 64), 20, *HALVES),
    matmul_case((19, 1, 64), 20, *BYTES),
    matmul_case((32, 1, 64), 32, *HALVES),
    convolution_case((14, 14), 64, 32, 3, BYTES),
    convolution_case((14, 14), 32, 32, 3, HALVES),
    convolution_case((7, 7), 64, 32, 3, BYTES, computed=(8, 7)),
    convolution_case((7, 7), 32, 48, 1, HALVES, computed=(8, 7)),
    convolution_case((11, 13), 32, 32, 3, HALVES, computed=(12, 14)),
    convolution_case((16, 1), 32, 32, 1, BYTES),
    convolution_case((1, 16), 32, 32, 1, HALVES),
    convolution_case((15, 15), 64, 32, 3, BYTES, stride=2),
    convolution_case((12, 12), 64, 32, 3, BYTES, dilation=2),
    convolution_case((28, 28), 4, 32, 7, BYTES, stride=2),
    convolution_case((28, 28), 4, 32, 7, HALVES, stride=2),
    convolution_case((32, 32), 4, 32, 3, HALVES, stride=2),
    attention_case(),
    attention_case(77, 77, 32, 32),
]
