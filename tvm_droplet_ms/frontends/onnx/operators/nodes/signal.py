# SPDX-License-Identifier: Apache-2.0
"""Converters for Fourier transforms: products with constant matrices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..operands import UnsupportedNode, constant_input, dtype_of, shape_of

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


class Dft(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``DFT``."""

    @classmethod
    def _impl_v17(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        return cls._converted(bb, inputs, attr, attr.get("axis", 1))

    @classmethod
    def _impl_v20(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        axis = constant_input(inputs, 2, "axis")
        return cls._converted(bb, inputs, attr, -2 if axis is None else int(axis))

    @classmethod
    def _converted(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], axis: int) -> Any:
        data = inputs[0]
        shape = shape_of(data)
        rank = len(shape)
        axis %= rank
        given = constant_input(inputs, 1, "dft_length")
        is_inverse, is_half = bool(attr.get("inverse", 0)), bool(attr.get("onesided", 0))
        length = shape[axis] if given is None else int(given)
        # The axis moves to the end, before the axis of real and imaginary parts.
        order = [n for n in range(rank - 1) if n != axis] + [axis, rank - 1]
        moved = bb.emit(relax.op.permute_dims(data, order))
        if length < shape[axis] and not (is_inverse and is_half):
            moved = bb.emit(relax.op.strided_slice(moved, [rank - 2], [0], [length]))
        parts = [moved] if shape[-1] == 1 else relax.op.split(moved, 2, rank - 1)
        parts = parts if isinstance(parts, list) else _items(bb, parts, 2)
        parts = [bb.emit(relax.op.squeeze(each, [rank - 1])) for each in parts]
        if is_inverse and is_half:
            result = _real_inverse(bb, parts, shape[axis] if given is None else 0, length)
        else:
            bins = length // 2 + 1 if is_half else length
            result = transformed(bb, parts, length, bins, is_inverse)
        back = [int(n) for n in np.argsort(order)]
        return relax.op.permute_dims(result, back)


class Stft(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``STFT``: frames, the window, and one product for all of them."""

    @classmethod
    def _impl_v17(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        signal, window = inputs[0], inputs[2]
        step = constant_input(inputs, 1, "frame_step")
        given = constant_input(inputs, 3, "frame_length")
        if step is None or (given is None and window is None):
            raise UnsupportedNode("it has neither a window nor a frame_length")
        length = shape_of(window)[0] if given is None else int(given)
        shape = shape_of(signal)
        count = (shape[1] - length) // int(step) + 1
        places = np.arange(count)[:, None] * int(step) + np.arange(length)[None, :]
        parts = [signal]
        if len(shape) == 3:
            parts = [signal] if shape[2] == 1 else _items(bb, relax.op.split(signal, 2, 2), 2)
            parts = [bb.emit(relax.op.squeeze(each, [2])) for each in parts]
        parts = [
            bb.emit(relax.op.take(each, relax.const(places.reshape(-1), "int64"), 1))
            for each in parts
        ]
        parts = [bb.emit(relax.op.reshape(each, [shape[0], count, length])) for each in parts]
        if window is not None:
            parts = [bb.emit(relax.op.multiply(each, window)) for each in parts]
        bins = length // 2 + 1 if attr.get("onesided", 1) else length
        return transformed(bb, parts, length, bins, False)


def _real_inverse(bb: Any, parts: Sequence[Any], given: int, length: int) -> Any:
    """The inverse of a one-sided transform of real numbers.

    ``given``: 0 if the node gives ``length``. Otherwise the length follows from the number of
    frequencies.
    """
    rows = shape_of(parts[0])[-1]
    if given:
        length = 2 * (rows - 1)
    rows = min(rows, length // 2 + 1)
    real, imaginary = fourier_matrices(rows, length, length, True)
    # Each frequency except the first and the middle one stands for two.
    twice = np.full((rows, 1), 2.0)
    twice[0] = 1
    if length % 2 == 0 and rows == length // 2 + 1:
        twice[-1] = 1
    dtype = dtype_of(parts[0])
    first = shape_of(parts[0])
    if first[-1] > rows:
        axis = len(first) - 1
        parts = [bb.emit(relax.op.strided_slice(each, [axis], [0], [rows])) for each in parts]
    matrices = [relax.const((twice * each).astype(dtype), dtype) for each in (real, imaginary)]
    products = [bb.emit(relax.op.matmul(part, matrix)) for part, matrix in zip(parts, matrices)]
    total = products[0]
    if len(products) == 2:
        total = bb.emit(relax.op.subtract(products[0], products[1]))
    return bb.emit(relax.op.expand_dims(total, -1))


def _items(bb: Any, value: Any, count: int) -> list[Any]:
    """The fields of a tuple."""
    found = bb.emit(value)
    return [bb.emit(relax.TupleGetItem(found, n)) for n in range(count)]


def transformed(bb: Any, parts: Sequence[Any], length: int, bins: int, inverse: bool) -> Any:
    """Transform along the last axis.

    ``bb``: the block builder. ``parts``: the real part of the input, and the imaginary part if
    there is one. ``length``, ``bins``, ``inverse``: as for ``fourier_matrices``. The result has one
    more axis, of the real and the imaginary part.
    """
    dtype = dtype_of(parts[0])
    real, imaginary = fourier_matrices(shape_of(parts[0])[-1], length, bins, inverse)

    def product(part: Any, matrix: Array) -> Any:
        return bb.emit(relax.op.matmul(part, relax.const(matrix.astype(dtype), dtype)))

    found = [product(parts[0], real), product(parts[0], imaginary)]
    if len(parts) == 2:
        found[0] = bb.emit(relax.op.subtract(found[0], product(parts[1], imaginary)))
        found[1] = bb.emit(relax.op.add(found[1], product(parts[1], real)))
    rank = len(shape_of(found[0]))
    return bb.emit(relax.op.stack(found, axis=rank))
