# SPDX-License-Identifier: Apache-2.0
"""Zero pads before convolutions and pools, and kernel elements that mostly read padding.

For an image of 16 pixels and dilations of 24 and 36, as at the end of a DeepLab, only the middle of
a 3x3 kernel reads the image: the convolution is 1x1. With a dilation of 12, an outer element reads
4 of the 16 rows, and padding for the others: three products in four are by zero. Each element alone
is a 1x1 convolution over the pixels that it reads.
"""

from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tvm import relax

from ..bindings import Bindings, Expr, constant, is_float32, operator_name, static_shape
from ..layers import CONVOLUTIONS, convolution_like, layouts_of
from ..rewriting import Emit, operator_pass

MOST_READ = 0.75
"""An axis is split if its kernel elements read the image for at most this share of the output."""

LEAST_SAVED = 1 << 26
"""Least number of products to save, because slicing the image and adding the parts take time."""


POOLS = {
    f"relax.nn.{kind}_pool{rank}d": getattr(relax.op.nn, f"{kind}_pool{rank}d")
    for kind in ("avg", "max")
    for rank in (1, 2, 3)
}


@operator_pass("FoldPads", [*CONVOLUTIONS, *POOLS], required=["relax.nn.pad"])
def fold_pads(bindings: Bindings, value: Expr, _emit: Emit) -> Expr | None:
    """Make a pass that moves each zero pad into the padding of the convolution or pool behind it.

    PyTorch's ``ZeroPad2d`` and models that were converted from TensorFlow pad explicitly.
    ``ConvertLayout`` has no rule for ``relax.nn.pad``, and the pad would be a separate kernel. A
    pad of another value or mode, of the batch or the channels, or with negative widths stays. The
    zeros must count in an average, and do not change a maximum only behind a ``relu``. If other
    operators also use a pad, they keep it.
    """
    pad = bindings.call_of(value.args[0], "relax.nn.pad")
    if pad is None or str(pad.attrs.pad_mode) != "constant" or float(pad.attrs.pad_value) != 0:
        return None
    is_pool, attrs = operator_name(value) in POOLS, value.attrs
    layout = str(attrs.layout if is_pool else attrs.data_layout)
    widths = [int(width) for width in pad.attrs.pad_width]
    padding = [int(width) for width in attrs.padding]
    if not layout.isupper() or len(padding) != 2 * (len(layout) - 2):
        return None
    spatial = [axis for axis, letter in enumerate(layout) if letter not in "NC"]
    others = [axis for axis in range(len(layout)) if axis not in spatial]
    if min(widths) < 0 or any(widths[2 * axis + end] for axis in others for end in (0, 1)):
        return None
    added = [widths[2 * axis + end] for end in (0, 1) for axis in spatial]
    merged = [own + more for own, more in zip(padding, added, strict=True)]
    if is_pool:
        return _padded_pool(bindings, value, pad.args[0], merged)
    return convolution_like(value, pad.args[0], value.args[1], padding=merged)


def _padded_pool(
    bindings: Bindings, value: relax.Call, source: Expr, merged: list[int]
) -> Expr | None:
    """Return a pool of an unpadded tensor; None if the zeros of the pad would change it."""
    name, attrs = operator_name(value), value.attrs
    if attrs.ceil_mode or {int(each) for each in attrs.dilation} != {1}:
        return None
    kernel = [int(size) for size in attrs.pool_size]
    if any(width >= size for width, size in zip(merged, [*kernel, *kernel], strict=True)):
        return None
    if "avg" in name:
        is_same = bool(attrs.count_include_pad) or not any(int(width) for width in attrs.padding)
    else:
        is_same = bindings.call_of(source, "relax.nn.relu") is not None
    if not is_same:
        return None
    counts = "avg" in name or bool(attrs.count_include_pad)
    options = (kernel, attrs.strides, merged, attrs.dilation, False, counts, attrs.layout)
    return POOLS[name](source, *options)


class _Axis(NamedTuple):
    """A pixel axis of a convolution: its letter, extents, kernel elements, and steps."""

    letter: str
    extent: int
    outputs: int
    size: int
    stride: int
    dilation: int


def _geometry(
    bindings: Bindings, value: Expr
) -> "tuple[np.ndarray[Any, Any], list[_Axis], tuple[int, ...]] | None":
    """Return the weight, the pixel axes and the result's shape of a convolution.

    None if the weight is not constant, a shape is unknown, or a layout is packed.
    """
    weight, layouts = bindings.array_of(value.args[1]), layouts_of(value.attrs)
    shape, found = static_shape(value.args[0]), static_shape(value)
    if weight is None or shape is None or found is None or not all(map(str.isupper, layouts)):
        return None
    data, kernel, out = layouts
    axes = [
        _Axis(
            letter,
            shape[data.index(letter)],
            found[out.index(letter)],
            weight.shape[kernel.index(letter)],
            int(value.attrs.strides[n]),
            int(value.attrs.dilation[n]),
        )
        for n, letter in enumerate(letter for letter in data if letter not in "NC")
    ]
    return weight, axes, found


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


@operator_pass("DropTaps", CONVOLUTIONS)
def drop_taps(bindings: Bindings, value: Expr, _emit: Emit) -> Expr | None:
    """Make a pass that drops outer rows and columns of kernels that read only padding.

    It rewrites convolutions with constant weights and static shapes.
    """
    geometry = _geometry(bindings, value)
    if geometry is None:
        return None
    weight, axes, _ = geometry
    kernel = str(value.attrs.kernel_layout)
    padding, cut = [int(width) for width in value.attrs.padding], [slice(None)] * weight.ndim
    for n, axis in enumerate(axes):
        taps = read_taps(*axis[1:], padding[n])
        before = padding[n] - taps.start * axis.dilation
        after = padding[len(axes) + n] - (axis.size - taps.stop) * axis.dilation
        if taps and before >= 0 and after >= 0:
            padding[n], padding[len(axes) + n] = before, after
            cut[kernel.index(axis.letter)] = slice(taps.start, taps.stop)
    small = weight[tuple(cut)]
    if small.shape == weight.shape:
        return None
    return convolution_like(value, value.args[0], constant(small), padding=padding)


def read_outputs(extent: int, outputs: int, stride: int, offset: int) -> range:
    """Return the outputs for which an element of the kernel reads the image along an axis.

    ``extent``, ``outputs``: number of pixels of the image and of the output. ``offset``: the pixel
    that the element reads for output 0; negative in the padding.
    """
    first = max(0, -(offset // stride))
    last = min(outputs, (extent - 1 - offset) // stride + 1)
    return range(first, max(first, last))


class _Part(NamedTuple):
    """Kernel elements along an axis, the outputs they add to, and the first pixel they read."""

    taps: slice
    outputs: range
    first: int


@operator_pass("SplitTaps", CONVOLUTIONS)
def split_taps(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that computes convolutions as sums, without most of the products with padding.

    Run it after the conversion of layouts, which has no rule for a pad. It rewrites float32
    convolutions of one group with constant weights and static shapes. It adds up the products in
    another order.
    """
    geometry = _geometry(bindings, value) if int(value.attrs.groups) == 1 else None
    if geometry is None or not is_float32(value) or not is_float32(value.args[0]):
        return None
    weight, axes, found = geometry
    if min(*found, *weight.shape) < 1:
        return None
    parts: list[list[_Part]] = []
    shares = []
    for n, axis in enumerate(axes):
        offsets = [tap * axis.dilation - int(value.attrs.padding[n]) for tap in range(axis.size)]
        reads = [read_outputs(axis.extent, axis.outputs, axis.stride, each) for each in offsets]
        share = sum(map(len, reads)) / (axis.size * axis.outputs)
        if share > MOST_READ:
            parts.append([_Part(slice(None), range(axis.outputs), 0)])
            continue
        shares.append(share)
        taps = enumerate(zip(reads, offsets, strict=True))
        parts.append(
            [
                _Part(slice(tap, tap + 1), read, read.start * axis.stride + offset)
                for tap, (read, offset) in taps
                if read
            ]
        )
    products = prod(found) * weight.size // found[str(value.attrs.out_layout).index("C")]
    if not shares or (1 - prod(shares)) * products < LEAST_SAVED:
        return None
    total = None
    for combination in product(*parts):
        part = emit(_partial_sum(value, weight, axes, combination, emit))
        total = part if total is None else emit(relax.op.add(total, part))
    # Return the value, not its variable, so that the result is not a copy of another variable.
    return None if total is None else bindings.values[total]


def _partial_sum(
    value: relax.Call,
    weight: "np.ndarray[Any, Any]",
    axes: list[_Axis],
    combination: tuple[_Part, ...],
    emit: Emit,
) -> relax.Call:
    """Return the contribution of some kernel elements to the output, padded with zeros."""
    data, kernel, out = layouts_of(value.attrs)
    cut, padding = [slice(None)] * weight.ndim, [int(width) for width in value.attrs.padding]
    begin, end = [0] * len(axes), [axis.extent for axis in axes]
    around = [0] * (2 * len(out))
    for n, (axis, part) in enumerate(zip(axes, combination, strict=True)):
        cut[kernel.index(axis.letter)] = part.taps
        if part.taps == slice(None):
            continue
        begin[n] = part.first
        end[n] = part.first + (len(part.outputs) - 1) * axis.stride + 1
        padding[n] = padding[len(axes) + n] = 0
        place = 2 * out.index(axis.letter)
        around[place : place + 2] = part.outputs.start, axis.outputs - part.outputs.stop
    image = value.args[0]
    if any(end[n] - begin[n] != axis.extent for n, axis in enumerate(axes)):
        places = [data.index(axis.letter) for axis in axes]
        image = emit(relax.op.strided_slice(image, places, begin=begin, end=end))
    part_of = convolution_like(value, image, constant(weight[tuple(cut)]), padding=padding)
    return relax.op.nn.pad(emit(part_of), around) if any(around) else part_of
