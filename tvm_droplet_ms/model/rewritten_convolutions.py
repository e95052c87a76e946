# SPDX-License-Identifier: Apache-2.0
"""Transposed and 3D convolutions, computed by plain and by 2D convolutions.

For a transposed convolution, TVM inserts zeros between the pixels: with a stride of 2, three
products in four are by zero. Shi et al., "Is the deconvolution layer the same as a convolutional
layer?" (2016), section 2, shows how to leave them out: pixel ``s q + r`` of the output has the taps
``r + s j`` of the kernel, on the pixels ``q - j`` of the input.

Video networks split 3D kernels (Tran et al., "A Closer Look at Spatiotemporal Convolutions for
Action Recognition", 2018, section 3.5): a kernel with one plane convolves each plane separately,
and a kernel with one pixel per plane convolves each pixel separately.
"""

from math import prod
from typing import Any

import numpy as np

from tvm import relax

from .bindings import Bindings, Expr, constant, operator_name, static_shape
from .layers import layouts_of
from .rewriting import Emit, operator_pass

TRANSPOSED = {
    "relax.nn.conv1d_transpose": ("W", relax.op.nn.conv1d),
    "relax.nn.conv2d_transpose": ("HW", relax.op.nn.conv2d),
    "relax.nn.conv3d_transpose": ("DHW", relax.op.nn.conv3d),
}
"""The pixel axes, and the convolution that computes blocks of pixels."""


@operator_pass("SplitTransposed", TRANSPOSED)
def split_transposed(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that computes transposed convolutions by convolutions of blocks of pixels.

    It rewrites transposed convolutions of one, two and three dimensions with channels first,
    constant weights, static shapes, nonempty input and output, and no dilation.
    """
    parts = _parts(bindings, value)
    if parts is None or not _is_plain(value):
        return None
    weights, shape, result = parts
    attrs, rank = value.attrs, len(shape) - 2
    strides = tuple(int(step) for step in attrs.strides)
    left = [int(width) for width in attrs.padding][:rank]
    groups = int(attrs.groups)
    blocks = np.concatenate([block_weights(w, strides) for w in np.split(weights, groups)])
    taps = blocks.shape[2:]
    # The blocks that hold the first and the last pixel of the output.
    first = [width // step for width, step in zip(left, strides, strict=True)]
    ends = [width + extent for width, extent in zip(left, result[2:], strict=True)]
    counts = [
        -(-end // step) - start for end, step, start in zip(ends, strides, first, strict=True)
    ]
    before = [tap - 1 - start for tap, start in zip(taps, first, strict=True)]
    after = [
        count - extent + tap - 1 - pad
        for count, extent, tap, pad in zip(counts, shape[2:], taps, before, strict=True)
    ]
    if min(before + after) < 0:  # The padding removes the outputs that edge pixels contribute to.
        return None
    convolution = TRANSPOSED[operator_name(value)][1]
    options = {"padding": before + after, "out_dtype": attrs.out_dtype, "groups": groups}
    found = convolution(value.args[0], constant(blocks), **options)
    if prod(strides) == 1:
        return found
    found, last = emit(found), rank + 1
    found = emit(relax.op.permute_dims(found, [0, *range(2, last + 1), 1]))
    several = [groups] if groups > 1 else []
    channels = [*several, *strides, result[1] // groups]
    found = emit(relax.op.reshape(found, (shape[0], *counts, *channels)))
    places = 1 + rank + len(several)
    pairs = [axis for n in range(rank) for axis in (1 + n, places + n)]
    ends_at = [*range(1 + rank, places), places + rank]
    found = emit(relax.op.permute_dims(found, [0, *pairs, *ends_at]))
    extents = [count * step for count, step in zip(counts, strides, strict=True)]
    found = emit(relax.op.reshape(found, (shape[0], *extents, result[1])))
    begin = [width % step for width, step in zip(left, strides, strict=True)]
    if extents != list(result[2:]):
        end = [start + extent for start, extent in zip(begin, result[2:], strict=True)]
        axes = list(range(1, last))
        found = emit(relax.op.strided_slice(found, axes=axes, begin=begin, end=end))
    return relax.op.permute_dims(found, [0, last, *range(1, last)])


def block_weights(
    weights: "np.ndarray[Any, Any]", strides: tuple[int, ...]
) -> "np.ndarray[Any, Any]":
    """Return the weights of the convolution that computes blocks of pixels.

    ``weights``: weights of the transposed convolution: input channels, output channels, and an axis
    for each of `strides`. ``strides``: strides of the transposed convolution, which are the size of
    a block. The result has the axes output channels, input channels and taps. Its output channels
    combine a place in the block and an output channel.
    """
    inputs, outputs, *sizes = weights.shape
    taps = [-(-size // step) for size, step in zip(sizes, strides, strict=True)]
    axes = list(zip(taps, strides, strict=True))
    widths = [(0, count * step - size) for (count, step), size in zip(axes, sizes, strict=True)]
    padded = np.pad(weights, [(0, 0), (0, 0), *widths])
    split = padded.reshape(inputs, outputs, *(extent for axis in axes for extent in axis))
    tap_axes, place_axes = range(2, split.ndim, 2), range(3, split.ndim, 2)
    # A convolution has its taps in pixel order, a transposed convolution in the reverse order.
    blocks = np.flip(split, tuple(tap_axes)).transpose(*place_axes, 1, 0, *tap_axes)
    return np.ascontiguousarray(blocks.reshape(-1, inputs, *taps))


def _parts(
    bindings: Bindings, value: Expr
) -> "tuple[np.ndarray[Any, Any], tuple[int, ...], tuple[int, ...]] | None":
    """Return the weights, the shape of the input and the shape of the result of a convolution.

    None if the weights are not constant, or if a shape is unknown or empty: in Relax's reshape, 0
    keeps the extent of the input.
    """
    weights = bindings.array_of(value.args[1])
    shape, result = static_shape(value.args[0]), static_shape(value)
    if weights is None or shape is None or result is None or min(*shape, *result) < 1:
        return None
    return weights, shape, result


def _is_plain(value: relax.Call) -> bool:
    """True if a transposed convolution has the default layouts and no dilation."""
    axes, _ = TRANSPOSED[operator_name(value)]
    return layouts_of(value.attrs) == (f"NC{axes}", f"IO{axes}", f"NC{axes}") and all(
        int(step) == 1 for step in value.attrs.dilation
    )


@operator_pass("FlattenVolumes", ["relax.nn.conv3d"])
def flatten_volumes(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that computes 3D convolutions as 2D convolutions where possible.

    2D kernels have known schedules, and design spaces with fewer loops. It rewrites convolutions in
    NDHWC with constant weights whose kernel has an extent of 1 along the depth, without padding
    there. It also rewrites them if the kernel has an extent of 1 along both other axes, without
    padding and with strides of 1 there. Convolutions with an extent of 0 stay.
    """
    attrs, data = value.attrs, value.args[0]
    parts = _parts(bindings, value)
    if parts is None or layouts_of(attrs) != ("NDHWC", "DHWIO", "NDHWC"):
        return None
    weights, shape, result = parts
    strides, dilation = [int(n) for n in attrs.strides], [int(n) for n in attrs.dilation]
    padding = [(int(attrs.padding[n]), int(attrs.padding[n + 3])) for n in range(3)]
    count, depth, height, width, channels = shape
    depth_taps, *image_taps = weights.shape[:3]
    if depth_taps == 1 and padding[0] == (0, 0):
        if strides[0] > 1:
            data = emit(
                relax.op.strided_slice(data, [1], begin=[0], end=[depth], strides=strides[:1])
            )
        images, axes = (count * result[1], height, width, channels), (1, 2)
    elif image_taps == [1, 1] and strides[1:] == [1, 1] and padding[1:] == [(0, 0)] * 2:
        images, axes = (count, depth, height * width, channels), (0, 2)
    else:
        return None
    filters = weights.reshape(*(weights.shape[axis] for axis in axes), *weights.shape[3:])
    found = relax.op.nn.conv2d(
        emit(relax.op.reshape(data, images)),
        constant(filters),
        strides=[strides[axis] for axis in axes],
        padding=[padding[axis][end] for end in (0, 1) for axis in axes],
        dilation=[dilation[axis] for axis in axes],
        groups=int(attrs.groups),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype=attrs.out_dtype,
    )
    return relax.op.reshape(emit(found), result)
