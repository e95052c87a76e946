# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that stay floats, because the kernel that rounds them dequantizes them next."""

import math
from functools import partial

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, operator_name, relax_operators, static_shape
from ..layers import CONVOLUTIONS
from ..rewriting import Emit, binding_pass, operator_pass
from .quantized_values import BYTES, RANGES, known_number

_ELEMENTWISE = relax_operators(
    "add subtract multiply divide maximum minimum clip round astype nn.relu"
)

_MOST_ZERO = 1 << 23
"""Largest zero point that float32 subtracts exactly."""

_PRODUCTS = (*CONVOLUTIONS, "relax.matmul")


def keep_whole_floats() -> tvm.transform.Pass:
    """Make a pass that removes conversions to bytes that only their own kernel reads.

    A value that was rounded and clipped to the range of a byte is a whole number. Converting it to
    a byte, widening it and subtracting the zero point is exact in all of these types, and so is
    subtracting the zero point from the float. Values that are stored for another kernel
    (``is_stored``) stay bytes. Run it on a prepared graph, whose layout is final.
    """

    return binding_pass(
        "KeepWholeFloats", lambda bindings: partial(_kept, bindings), ["relax.astype"]
    )


def _kept(bindings: Bindings, var: Var, value: Expr, _emit: Emit) -> Expr | None:
    found = _whole_float(bindings, var, value)
    if found is None or is_stored(bindings, var):
        return None
    wide, zero = found
    return relax.op.subtract(wide, relax.const(float(zero), "float32"))


@operator_pass("MoveLimits", ["relax.subtract", "relax.maximum"])
def move_limits(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Make a pass that computes less for numbers that are scaled, rounded and limited.

    A zero point that is added before the limits and subtracted after them moves the limits instead.
    A ReLU before the scale is dropped if the lower limit is not below the zero point. Every number
    stays the same. Run it after ``keep_whole_floats``.
    """
    if operator_name(value) == "relax.subtract":
        return _without_zero(bindings, value, emit)
    return _without_relu(bindings, value, emit)


def _without_zero(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Return limited numbers less the zero point that was added to them; None if it was not.

    Numbers so large that float32 rounds their sum with a zero point exceed the limits anyway.
    """
    zero = known_number(bindings, value.args[1])
    low, high, limited = _limits(bindings, value.args[0])
    added = bindings.value_of(limited)
    if zero is None or operator_name(added) != "relax.add" or str(value.ty.dtype) != "float32":
        return None
    rounded, limits = added.args[0], [low - float(zero), high - float(zero)]
    is_same = known_number(bindings, added.args[1]) == zero
    is_rounded = operator_name(bindings.value_of(rounded)) == "relax.round"
    if not is_same or not is_rounded or not np.isfinite(limits).all():
        return None
    if zero != int(zero) or max(map(abs, [zero, low, high])) > _MOST_ZERO:
        return None
    if static_shape(value) != static_shape(rounded):
        return None
    above = emit(relax.op.maximum(rounded, relax.const(limits[0], "float32")))
    return relax.op.minimum(above, relax.const(limits[1], "float32"))


def _without_relu(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    low, added = known_number(bindings, value.args[1]), bindings.value_of(value.args[0])
    has_zero = operator_name(added) == "relax.add"
    zero = known_number(bindings, added.args[1]) if has_zero else 0.0
    rounding = bindings.value_of(added.args[0]) if has_zero else added
    if low is None or zero is None or not low >= zero or operator_name(rounding) != "relax.round":
        return None
    scaled = bindings.value_of(rounding.args[0])
    if operator_name(scaled) not in ("relax.multiply", "relax.divide"):
        return None
    scale, relu = known_number(bindings, scaled.args[1]), bindings.value_of(scaled.args[0])
    if scale is None or not 0.0 < scale < math.inf or _bounds(bindings, relu) != (0.0, math.inf):
        return None
    unlimited = emit(relax.Call(scaled.op, [relu.args[0], scaled.args[1]], scaled.attrs))
    rounded = emit(relax.op.round(unlimited))
    if has_zero:
        rounded = emit(relax.op.add(rounded, added.args[1]))
    return relax.op.maximum(rounded, value.args[1])


def _whole_float(bindings: Bindings, var: Var, value: Expr) -> tuple[Var, int] | None:
    """Return the whole floats behind bytes that have one reader, and the zero point; or None."""
    if operator_name(value) != "relax.astype" or str(value.ty.dtype) != "float32":
        return None
    reader, data, zero = var, value.args[0], 0
    shifted = bindings.call_of(data, "relax.subtract")
    if shifted is not None and str(shifted.ty.dtype) == "int32":
        number = known_number(bindings, shifted.args[1])
        is_same = static_shape(shifted) == static_shape(shifted.args[0])
        if number is None or not is_same or not _is_read_by(bindings, data, reader):
            return None
        if abs(int(number)) > _MOST_ZERO:
            return None
        reader, data, zero = data, shifted.args[0], int(number)
    wide = bindings.call_of(data, "relax.astype")
    if wide is not None and str(wide.ty.dtype) == "int32":
        if not _is_read_by(bindings, data, reader):
            return None
        reader, data = data, wide.args[0]
    narrow = bindings.call_of(data, "relax.astype")
    if narrow is None or str(narrow.ty.dtype) not in BYTES:
        return None
    if not _is_read_by(bindings, data, reader) or not _is_whole(bindings, narrow):
        return None
    return narrow.args[0], zero


def _is_read_by(bindings: Bindings, data: Expr, reader: Var) -> bool:
    user = bindings.only_user(data)
    return user is not None and user.same_as(reader)


def _is_whole(bindings: Bindings, narrow: Expr) -> bool:
    """True if the operand of a conversion to bytes was rounded and clipped to their range."""
    low, high, limited = _limits(bindings, narrow.args[0])
    value = bindings.value_of(limited)
    if operator_name(value) == "relax.add":
        number = known_number(bindings, value.args[1])
        if number is None or not np.isfinite(number) or number != int(number):
            return False
        value = bindings.value_of(value.args[0])
    least, most = RANGES[str(narrow.ty.dtype)]
    is_rounded = operator_name(value) == "relax.round" and str(value.ty.dtype) == "float32"
    return is_rounded and least <= low and high <= most and low == int(low) and high == int(high)


def _limits(bindings: Bindings, expr: Expr) -> tuple[float, float, Expr]:
    """Return the bounds of a value, and the value before all that limits it."""
    low, high, value = -math.inf, math.inf, bindings.value_of(expr)
    while (bounds := _bounds(bindings, value)) is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
        expr = value.args[0]
        value = bindings.value_of(expr)
    return low, high, expr


def _bounds(bindings: Bindings, value: Expr) -> tuple[float, float] | None:
    """Return the bounds of an operator that limits numbers, or None for other operators."""
    name = operator_name(value).removeprefix("relax.")
    if name == "nn.relu":
        return 0.0, math.inf
    if name == "clip":
        return float(value.args[1].value), float(value.args[2].value)
    number = known_number(bindings, value.args[1]) if name in ("maximum", "minimum") else None
    if number is None:
        return None
    return (float(number), math.inf) if name == "maximum" else (-math.inf, float(number))


def is_stored(bindings: Bindings, var: Var) -> bool:
    """True if a value is stored because the kernel of another product adds it.

    ``FuseOps`` fuses the sum of two products with the product whose term is bound earlier. ``var``:
    bound in the block.
    """
    order = list(bindings.values)
    current = var
    while (user := bindings.only_user(current)) is not None and user in bindings.values:
        value = bindings.values[user]
        if operator_name(value) not in _ELEMENTWISE:
            return False
        others = [each for each in _tensors(bindings, value) if not each.same_as(current)]
        if others:
            is_choice = all(_is_of_product(bindings, each) for each in (current, others[0]))
            return is_choice and order.index(others[0]) < order.index(current)
        current = user
    return False


def _is_of_product(bindings: Bindings, expr: Expr) -> bool:
    """True if the kernel of a product computes a value that has one reader."""
    while isinstance(expr, relax.Var) and bindings.only_user(expr) is not None:
        value = bindings.values.get(expr)
        if value is None:
            return False
        if operator_name(value) in _PRODUCTS:
            return True
        operands = _tensors(bindings, value)
        if operator_name(value) not in _ELEMENTWISE or len(operands) != 1:
            return False
        (expr,) = operands
    return False


def _tensors(bindings: Bindings, value: Expr) -> list[Var]:
    """Return the operands of a call that are not constant."""
    return [
        each
        for each in value.args
        if isinstance(each, relax.Var) and bindings.array_of(each) is None
    ]
