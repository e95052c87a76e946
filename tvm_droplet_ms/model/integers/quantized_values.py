# SPDX-License-Identifier: Apache-2.0
"""Values of a Relax function that represent quantized numbers: ``(byte - zero) * scale``."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax

from ..bindings import Bindings, Expr, array_of, operator_name, static_shape
from ..folding.numpy_folding import evaluate, tensor_operands

Array = np.ndarray[Any, Any]

BYTES = ("uint8", "int8")
RANGES = {"int8": (-128.0, 127.0), "uint8": (0.0, 255.0)}
"""Least and largest number of each type."""

SHIFT = 128
"""Offset from signed to unsigned bytes."""

_DEEPEST = 6
"""Maximum number of successive operations to look through. Scales and zero points are constants, or
a few operations on constants. Without a limit, each lookup of a scale that is known only at run
time would walk the whole graph behind it."""

_MOVES = ("relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.squeeze")


@dataclass(frozen=True)
class Quantized:
    """A tensor of bytes that represents ``(data - zero) * scale``.

    ``zero``: a number, or an int32 scalar that is known only at run time. ``scale``: None if the
    tensor is not scaled.
    """

    data: Expr
    zero: int | Expr = 0
    scale: np.float32 | None = None


@dataclass(frozen=True)
class QuantizedConstant:
    """A constant tensor ``values * scale`` of integers and scales that broadcast with them."""

    values: Array
    scale: Array


def known(bindings: Bindings, expr: Expr, depth: int = _DEEPEST) -> Array | None:
    """Return the values of a tensor that is computed from constants, or None for other tensors.

    ``depth``: the maximum number of operations to look through.
    """
    value = bindings.value_of(expr)
    array = array_of(value)
    shape = static_shape(value) if array is None and operator_name(value) else None
    if array is not None or shape is None or not depth:
        return array
    arrays = []
    for operand in tensor_operands(value):
        if isinstance(operand, relax.ShapeExpr):
            continue
        found = known(bindings, operand, depth - 1)
        if found is None:
            return None
        arrays.append(found)
    return evaluate(value, arrays, shape) if arrays else None


def known_number(bindings: Bindings, expr: Expr) -> Any:
    """Return the number in a tensor of one element that is computed from constants, or None."""
    array = known(bindings, expr)
    return array.reshape(-1)[0] if array is not None and array.size == 1 else None


def quantized(bindings: Bindings, expr: Expr, depth: int = _DEEPEST) -> Quantized | None:
    """Return the bytes from which a tensor of int32 or float32 is dequantized.

    None if the tensor is not dequantized from bytes with one scale and one zero point. ``depth``:
    the most operations to look through.
    """
    if not depth:
        return None
    value = bindings.value_of(expr)
    name, dtype = operator_name(value), _type(value)
    if name == "relax.astype" and dtype in ("int32", "float32"):
        source = value.args[0]
        if _type(source) in BYTES:
            return Quantized(source)
        return quantized(bindings, source, depth - 1) if _type(source) == "int32" else None
    is_step = name == "relax.multiply" and dtype == "float32"
    is_shift = name == "relax.subtract" and dtype == "int32"
    if not (is_step or is_shift) or static_shape(value) != static_shape(value.args[0]):
        return None
    inner = quantized(bindings, value.args[0], depth - 1)
    number = known_number(bindings, value.args[1])
    if inner is None:
        return None
    if is_step:
        if number is None:
            return None
        scale = number if inner.scale is None else inner.scale * number
        return Quantized(inner.data, inner.zero, scale)
    if number is not None and isinstance(inner.zero, int):
        return Quantized(inner.data, inner.zero + int(number))
    # A zero point that is known only at run time is a byte too.
    zero = bindings.call_of(value.args[1], "relax.astype")
    is_byte = zero is not None and _type(zero.args[0]) in BYTES and static_shape(zero) == ()
    is_plain = isinstance(inner.zero, int) and inner.zero == 0
    return Quantized(inner.data, value.args[1]) if is_byte and is_plain else None


def quantized_constant(bindings: Bindings, expr: Expr) -> QuantizedConstant | None:
    """Return the integers and the scale from which a constant int32 or float32 tensor is computed.

    None if the tensor is not computed from integers.
    """
    value = bindings.value_of(expr)
    name = operator_name(value)
    if _type(value).startswith(("int", "uint")):
        array = known(bindings, value)
        return None if array is None else QuantizedConstant(array, np.ones((), np.float32))
    if name == "relax.astype":
        return quantized_constant(bindings, value.args[0])
    inner = (
        quantized_constant(bindings, value.args[0]) if name in ("relax.multiply", *_MOVES) else None
    )
    shape = static_shape(value) if inner is not None else None
    if inner is None or shape is None:
        return None
    if name == "relax.multiply":
        scale = known(bindings, value.args[1])
        has_shape = scale is not None and inner.values.shape == shape
        return QuantizedConstant(inner.values, inner.scale * scale) if has_shape else None
    scales = np.broadcast_to(inner.scale, inner.values.shape)
    values, scale = (evaluate(value, [each], shape) for each in (inner.values, scales))
    return None if values is None or scale is None else QuantizedConstant(values, scale)


def _type(expr: Expr) -> str:
    """Return the element type of a tensor, or an empty string for other expressions."""
    return str(getattr(getattr(expr, "ty", None), "dtype", ""))
