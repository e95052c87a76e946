# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose kernels mostly read padding, as sums of smaller convolutions.

With a dilation of 12, an outer element of a 3x3 kernel reads 4 of the 16 rows of an image, and
padding for the others: three products in four are by zero. Each element alone is a 1x1 convolution
over the pixels that it reads.
"""

from itertools import product
from math import prod
from typing import Any

import numpy as np

import tvm
from tvm import relax

from ..bindings import (
    Bindings,
    Expr,
    Var,
    array_of,
    constant,
    is_float32,
    operator_name,
    static_shape,
)
from ..layers import CONVOLUTIONS, convolution_like, layouts_of
from ..rewriting import Emit, binding_pass, stateless

MOST_READ = 0.75
"""An axis is split if its kernel elements read the image for at most this share of the output."""

LEAST_SAVED = 1 << 26
"""Least number of products to save, because slicing the image and adding the parts take time."""


def split_taps() -> tvm.transform.Pass:
    """Make a pass that computes such convolutions as sums, without the products with padding.

    Run it after the conversion of layouts, which has no rule for a pad. Returns the pass. It
    rewrites float32 convolutions of one group with constant weights and static shapes. It adds up
    the products in another order.
    """
    return binding_pass("SplitTaps", stateless(_split), list(CONVOLUTIONS))


def read_outputs(extent: int, outputs: int, stride: int, offset: int) -> range:
    """Return the outputs for which an element of the kernel reads the image along an axis.

    ``extent``, ``outputs``: number of pixels of the image and of the output. ``offset``: the pixel
    that the element reads for output 0; negative in the padding.
    """
    first = max(0, -(offset // stride))
    last = min(outputs, (extent - 1 - offset) // stride + 1)
    return range(first, max(first, last))


def _split(bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
    if operator_name(value) not in CONVOLUTIONS or int(value.attrs.groups) != 1:
        return None
    attrs, weight = value.attrs, array_of(bindings.value_of(value.args[1]))
    shape, found = static_shape(value.args[0]), static_shape(value)
    layouts = layouts_of(attrs)
    if weight is None or shape is None or found is None or not all(map(str.isupper, layouts)):
        return None
    if min(*found, *weight.shape) < 1:
        return None
    if not is_float32(value) or not is_float32(value.args[0]):
        return None
    data, kernel, out = layouts
    axes = [letter for letter in data if letter not in "NC"]
    # The parts of each axis: kernel elements, the outputs they add to, and the first pixel read.
    parts: list[list[tuple[slice, range, int]]] = []
    shares = []
    for n, letter in enumerate(axes):
        extent, outputs = shape[data.index(letter)], found[out.index(letter)]
        size, stride = weight.shape[kernel.index(letter)], int(attrs.strides[n])
        offsets = [tap * int(attrs.dilation[n]) - int(attrs.padding[n]) for tap in range(size)]
        reads = [read_outputs(extent, outputs, stride, offset) for offset in offsets]
        share = sum(map(len, reads)) / (size * outputs)
        if share > MOST_READ:
            parts.append([(slice(None), range(outputs), 0)])
            continue
        shares.append(share)
        parts.append(
            [
                (slice(tap, tap + 1), read, read.start * stride + offset)
                for tap, (read, offset) in enumerate(zip(reads, offsets, strict=True))
                if read
            ]
        )
    products = prod(found) * weight.size // found[out.index("C")]
    if not shares or (1 - prod(shares)) * products < LEAST_SAVED:
        return None
    total = None
    for combination in product(*parts):
        part = emit(_part(value, weight, (shape, found), combination, emit))
        total = part if total is None else emit(relax.op.add(total, part))
    # Return the value, not its variable, so that the result is not a copy of another variable.
    return None if total is None else bindings.values[total]


def _part(
    value: relax.Call,
    weight: "np.ndarray[Any, Any]",
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    combination: tuple[tuple[slice, range, int], ...],
    emit: Emit,
) -> relax.Call:
    """Return the contribution of some kernel elements to the output, padded with zeros."""
    data, kernel, out = layouts_of(value.attrs)
    axes = [letter for letter in data if letter not in "NC"]
    shape, found = shapes
    cut, padding = [slice(None)] * weight.ndim, [int(width) for width in value.attrs.padding]
    begin: list[int] = []
    end: list[int] = []
    around = [0] * (2 * len(found))
    for n, (letter, (taps, read, first)) in enumerate(zip(axes, combination, strict=True)):
        cut[kernel.index(letter)] = taps
        if taps == slice(None):
            begin, end = [*begin, 0], [*end, shape[data.index(letter)]]
            continue
        begin.append(first)
        end.append(first + (len(read) - 1) * int(value.attrs.strides[n]) + 1)
        padding[n] = padding[len(axes) + n] = 0
        axis = out.index(letter)
        around[2 * axis : 2 * axis + 2] = read.start, found[axis] - read.stop
    places = [data.index(letter) for letter in axes]
    image = value.args[0]
    if [end[n] - begin[n] for n in range(len(axes))] != [shape[place] for place in places]:
        image = emit(relax.op.strided_slice(image, places, begin=begin, end=end))
    part = convolution_like(value, image, constant(weight[tuple(cut)]), padding=padding)
    return relax.op.nn.pad(emit(part), around) if any(around) else part
