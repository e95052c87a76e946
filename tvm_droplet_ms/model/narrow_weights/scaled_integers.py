# SPDX-License-Identifier: Apache-2.0
"""Matrices that a graph computes from constant integers, scales and zero points."""

from typing import Any

import numpy as np

from tvm import relax

from ..bindings import Bindings, Expr, array_of, operator_name, static_shape
from ..folding.numpy_folding import RESHAPES
from ..integers.quantized_values import known
from ..kernels.weights.packing import Array, Scaled
from ..layout.transposes import axes_of

_DEEPEST = 8
"""Maximum number of operations between the integers and the matrix."""


def scaled_integers(bindings: Bindings, expr: Expr, depth: int = _DEEPEST) -> Scaled | None:
    """Return the integers, zero points and scales of a float32 tensor; None for any other tensor.

    ``depth``: maximum number of successive operations to look through.
    """
    value = bindings.value_of(expr)
    name, shape = operator_name(value), static_shape(value)
    if not depth or not name or shape is None:
        return None
    if name == "relax.astype":
        integers = _integers(bindings, value.args[0])
        return None if integers is None else _like(*integers, np.float32(1))
    if name == "relax.dequantize":
        return _dequantized(bindings, value)
    if name not in _MOVES:
        return None
    found = scaled_integers(bindings, value.args[0], depth - 1)
    if found is None:
        return None
    if name in ("relax.subtract", "relax.multiply"):
        other = known(bindings, value.args[1])
        if other is None or other.dtype != np.float32 or shape != found.numbers.shape:
            return None
        if name == "relax.multiply":
            return _like(found.numbers, found.zeros, found.scales * other)
        # A number that is subtracted after scaling is not a zero point of the integers.
        is_scaled = bool((found.scales != 1).any())
        return None if is_scaled else _like(found.numbers, found.zeros + other, found.scales)
    return Scaled(*(_moved(value, each, shape) for each in _parts(found)))


def _integers(bindings: Bindings, expr: Expr) -> tuple[Array, Array] | None:
    """Return constant bytes and the numbers subtracted from them as wider integers, or None."""
    value = bindings.value_of(expr)
    array = array_of(value)
    if array is not None:
        is_byte = array.dtype in (np.int8, np.uint8)
        return (array, np.zeros((), "float32")) if is_byte else None
    name = operator_name(value)
    if name not in ("relax.astype", "relax.subtract") or str(value.ty.dtype) != "int32":
        return None
    found = _integers(bindings, value.args[0])
    if found is None or name == "relax.astype":
        return found
    zeros = known(bindings, value.args[1])
    is_same = zeros is not None and static_shape(value) == found[0].shape
    return (found[0], found[1] + zeros.astype("float32")) if is_same and zeros is not None else None


_MOVES = {*RESHAPES, "relax.permute_dims", "relax.subtract", "relax.multiply"}


def _parts(found: Scaled) -> tuple[Array, Array, Array]:
    return found.numbers, found.zeros, found.scales


def _like(numbers: Array, zeros: Any, scales: Any) -> Scaled:
    """Broadcast zero points and scales to the shape of the integers."""
    tables = (np.broadcast_to(each, numbers.shape) for each in (zeros, scales))
    return Scaled(numbers, *tables)


def _moved(value: relax.Call, array: Array, shape: tuple[int, ...]) -> Array:
    if operator_name(value) == "relax.permute_dims":
        return np.transpose(array, axes_of(value, array.ndim))
    return array.reshape(shape)


def _dequantized(bindings: Bindings, value: relax.Call) -> Scaled | None:
    """Match a ``relax.dequantize`` of constants, whose scales and zero points are along an axis."""
    numbers, scale, zero = (array_of(bindings.value_of(each)) for each in value.args)
    if numbers is None or scale is None or zero is None or numbers.dtype.itemsize > 1:
        return None
    column = [1] * numbers.ndim
    column[int(value.attrs.axis)] = -1
    tables = (each.astype("float32").reshape(column if each.ndim else ()) for each in (zero, scale))
    return _like(numbers, *tables)
