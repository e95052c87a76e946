# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions as convolutions that compute a block of pixels per output position.

TVM inserts zeros between the pixels and convolves. With a stride of 2, three products in four are
by zero. Shi et al., "Is the deconvolution layer the same as a convolutional layer?" (2016), section
2, shows how to leave them out: pixel ``s q + r`` of the output has the taps ``r + s j`` of the
kernel, on the pixels ``q - j`` of the input.
"""

from math import prod
from typing import Any

import numpy as np

import tvm
from tvm import relax

from .bindings import Bindings, Expr, Var, array_of, constant, operator_name, static_shape
from .layers import layouts_of
from .rewriting import Emit, binding_pass, stateless

TRANSPOSED = {
    "relax.nn.conv1d_transpose": ("W", relax.op.nn.conv1d),
    "relax.nn.conv2d_transpose": ("HW", relax.op.nn.conv2d),
    "relax.nn.conv3d_transpose": ("DHW", relax.op.nn.conv3d),
}
"""The pixel axes, and the convolution that computes blocks of pixels."""


def split_transposed() -> tvm.transform.Pass:
    """Make a pass that computes transposed convolutions by convolutions of blocks of pixels.

    Returns the pass. It rewrites transposed convolutions of one, two and three dimensions with
    channels first, constant weights, static shapes, nonempty input and output, and no dilation.
    """
    return binding_pass("SplitTransposed", stateless(_split), list(TRANSPOSED))


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


def _split(bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
    if operator_name(value) not in TRANSPOSED or not _is_plain(value):
        return None
    weights = array_of(bindings.value_of(value.args[1]))
    shape, result = static_shape(value.args[0]), static_shape(value)
    if weights is None or shape is None or result is None:
        return None
    if min(*shape, *result) < 1:  # In Relax's reshape, 0 keeps the extent of the input.
        return None
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


def _is_plain(value: relax.Call) -> bool:
    """True if a transposed convolution has the default layouts and no dilation."""
    axes, _ = TRANSPOSED[operator_name(value)]
    return layouts_of(value.attrs) == (f"NC{axes}", f"IO{axes}", f"NC{axes}") and all(
        int(step) == 1 for step in value.attrs.dilation
    )
