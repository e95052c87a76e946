# SPDX-License-Identifier: Apache-2.0
"""Converters for Fourier transforms: products with constant matrices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm.relax import op

from ..operands import (
    Attributes,
    UnsupportedNode,
    constant,
    constant_input,
    converts,
    dtype_of,
    fields,
    integers,
    part,
    shape_of,
)

Array = np.ndarray[Any, Any]


def fourier_matrices(inputs: int, length: int, bins: int, inverse: bool) -> tuple[Array, Array]:
    """The real and the imaginary part of a discrete Fourier transform as matrices.

    ``inputs``: number of elements that the transform reads. Further elements up to ``length`` are
    zeros. ``bins``: number of frequencies. ``inverse``: whether it is the inverse transform, which
    divides by the length. Returns matrices of shape (inputs, bins), float64.
    """
    products = np.outer(np.arange(inputs), np.arange(bins)) % length
    angles = 2 * np.pi * products / length
    factor = 1 / length if inverse else 1.0
    sign = 1 if inverse else -1
    return np.cos(angles) * factor, sign * np.sin(angles) * factor


@converts("DFT")
def dft_of_attribute(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Before version 20, the axis is an attribute."""
    return _dft(bb, inputs, attr, attr.get("axis", 1))


@converts("DFT", since=20)
def dft(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A discrete Fourier transform along an axis."""
    axis = constant_input(inputs, 2, "axis")
    return _dft(bb, inputs, attr, -2 if axis is None else int(axis))


def _dft(bb: Any, inputs: Any, attr: Attributes, axis: int) -> Any:
    shape = shape_of(inputs[0])
    rank = len(shape)
    axis %= rank
    given = constant_input(inputs, 1, "dft_length")
    is_inverse, is_half = bool(attr.get("inverse", 0)), bool(attr.get("onesided", 0))
    length = shape[axis] if given is None else int(given)
    # The axis moves to the end, before the axis of real and imaginary parts.
    order = [n for n in range(rank - 1) if n != axis] + [axis, rank - 1]
    moved = bb.emit(op.permute_dims(inputs[0], order))
    if length < shape[axis] and not (is_inverse and is_half):
        moved = bb.emit(part(moved, rank - 2, 0, length))
    parts = _real_and_imaginary(bb, moved)
    if is_inverse and is_half:
        result = _real_inverse(bb, parts, shape[axis] if given is None else 0, length)
    else:
        bins = length // 2 + 1 if is_half else length
        result = transformed(bb, parts, length, bins, is_inverse)
    return op.permute_dims(result, [int(n) for n in np.argsort(order)])


@converts("STFT")
def stft(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Frames, the window, and one product for all of them."""
    signal, window = inputs[0], inputs[2]
    step = constant_input(inputs, 1, "frame_step")
    given = constant_input(inputs, 3, "frame_length")
    if step is None or (given is None and window is None):
        raise UnsupportedNode("it has neither a window nor a frame_length")
    length = shape_of(window)[0] if given is None else int(given)
    shape = shape_of(signal)
    count = (shape[1] - length) // int(step) + 1
    places = np.arange(count)[:, None] * int(step) + np.arange(length)[None, :]
    parts = _real_and_imaginary(bb, signal) if len(shape) == 3 else [signal]
    parts = [bb.emit(op.take(each, integers(places.reshape(-1)), 1)) for each in parts]
    parts = [bb.emit(op.reshape(each, [shape[0], count, length])) for each in parts]
    if window is not None:
        parts = [bb.emit(each * window) for each in parts]
    bins = length // 2 + 1 if attr.get("onesided", 1) else length
    return transformed(bb, parts, length, bins, False)


def _real_and_imaginary(bb: Any, data: Any) -> list[Any]:
    """The parts along the last axis; real numbers have one."""
    shape = shape_of(data)
    axis = len(shape) - 1
    parts = [data] if shape[-1] == 1 else fields(bb, op.split(data, 2, axis), 2)
    return [bb.emit(op.squeeze(each, [axis])) for each in parts]


def _real_inverse(bb: Any, parts: Sequence[Any], given: int, length: int) -> Any:
    """The inverse of a one-sided transform of real numbers.

    ``given``: 0 if the node gives ``length``. Otherwise the length follows from the number of
    frequencies.
    """
    first = shape_of(parts[0])
    if given:
        length = 2 * (first[-1] - 1)
    rows = min(first[-1], length // 2 + 1)
    matrices = fourier_matrices(rows, length, length, True)
    # Each frequency except the first and the middle one stands for two.
    twice = np.full((rows, 1), 2.0)
    twice[0] = 1
    if length % 2 == 0 and rows == length // 2 + 1:
        twice[-1] = 1
    if first[-1] > rows:
        parts = [bb.emit(part(each, len(first) - 1, 0, rows)) for each in parts]
    dtype = dtype_of(parts[0])
    factors = [constant(twice * each, dtype) for each in matrices]
    products = [bb.emit(op.matmul(each, matrix)) for each, matrix in zip(parts, factors)]
    total = products[0] if len(products) == 1 else bb.emit(products[0] - products[1])
    return bb.emit(op.expand_dims(total, -1))


def transformed(bb: Any, parts: Sequence[Any], length: int, bins: int, inverse: bool) -> Any:
    """Transform along the last axis.

    ``bb``: the block builder. ``parts``: the real part of the input, and the imaginary part if
    there is one. ``length``, ``bins``, ``inverse``: as for ``fourier_matrices``. The result has one
    more axis, of the real and the imaginary part.
    """
    shape, dtype = shape_of(parts[0]), dtype_of(parts[0])
    matrices = fourier_matrices(shape[-1], length, bins, inverse)
    real, imaginary = (constant(each, dtype) for each in matrices)
    found = [bb.emit(op.matmul(parts[0], each)) for each in (real, imaginary)]
    if len(parts) == 2:
        found[0] = bb.emit(found[0] - op.matmul(parts[1], imaginary))
        found[1] = bb.emit(found[1] + op.matmul(parts[1], real))
    return bb.emit(op.stack(found, axis=len(shape)))
