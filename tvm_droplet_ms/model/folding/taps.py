# SPDX-License-Identifier: Apache-2.0
"""Elements of a convolution's kernel that read only padding.

For an image of 16 pixels and dilations of 24 and 36, as at the end of a DeepLab, only the middle of
a 3x3 kernel reads the image: the convolution is 1x1.
"""

import tvm

from ..bindings import Bindings, Expr, Var, array_of, constant, operator_name, static_shape
from ..layers import CONVOLUTIONS, convolution_like
from ..rewriting import Emit, binding_pass, stateless


def read_taps(
    extent: int, outputs: int, size: int, stride: int, dilation: int, before: int
) -> range:
    """Return the range from the first to the last kernel element that reads the image on an axis.

    ``extent``, ``outputs``: number of pixels of the image and of the output. ``size``: number of
    kernel elements. ``before``: number of zeros in front of the image.
    """
    reads = [
        tap
        for tap in range(size)
        if any(0 <= y * stride + tap * dilation - before < extent for y in range(outputs))
    ]
    return range(reads[0], reads[-1] + 1) if reads else range(0)


def _rewrite(bindings: Bindings, _var: Var, value: Expr, _emit: Emit) -> Expr | None:
    if operator_name(value) not in CONVOLUTIONS:
        return None
    attrs, weight = value.attrs, array_of(bindings.value_of(value.args[1]))
    shape, found = static_shape(value.args[0]), static_shape(value)
    layouts = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
    if weight is None or shape is None or found is None or not all(map(str.isupper, layouts)):
        return None
    data, kernel, out = layouts
    axes = [letter for letter in data if letter not in "NC"]
    padding, cut = [int(width) for width in attrs.padding], [slice(None)] * weight.ndim
    for n, letter in enumerate(axes):
        size, dilation = weight.shape[kernel.index(letter)], int(attrs.dilation[n])
        extents = shape[data.index(letter)], found[out.index(letter)]
        taps = read_taps(*extents, size, int(attrs.strides[n]), dilation, padding[n])
        before = padding[n] - taps.start * dilation
        after = padding[len(axes) + n] - (size - taps.stop) * dilation
        if taps and before >= 0 and after >= 0:
            padding[n], padding[len(axes) + n] = before, after
            cut[kernel.index(letter)] = slice(taps.start, taps.stop)
    small = weight[tuple(cut)]
    if small.shape == weight.shape:
        return None
    return convolution_like(value, value.args[0], constant(small), padding=padding)


def drop_taps() -> tvm.transform.Pass:
    """Make a pass that drops outer rows and columns of kernels that read only padding.

    Returns the pass. It rewrites convolutions with constant weights and static shapes.
    """
    return binding_pass("DropTaps", stateless(_rewrite), list(CONVOLUTIONS))
