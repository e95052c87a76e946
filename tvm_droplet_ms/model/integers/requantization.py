# SPDX-License-Identifier: Apache-2.0
"""Data movement and rounding on bytes in place of dequantized values."""

import numpy as np

from tvm import relax

from ..bindings import Bindings, Expr, operator_name, relax_operators, static_shape
from ..rewriting import Emit
from .quantized_values import RANGES, SHIFT, Quantized, known_number, quantized

_MOVES = relax_operators(
    "reshape permute_dims expand_dims squeeze flatten strided_slice nn.max_pool2d"
)


def unsigned(bindings: Bindings, tensor: Quantized, emit: Emit) -> Quantized:
    """Return the same numbers, quantized to unsigned bytes."""
    if str(tensor.data.ty.dtype) == "uint8":
        return tensor
    if isinstance(tensor.zero, int):
        zero: int | Expr = tensor.zero + SHIFT
    else:
        zero = emit(relax.op.add(tensor.zero, relax.const(SHIFT, "int32")))
    source = _unsigned_source(bindings, tensor.data)
    if source is not None:
        return Quantized(source, zero, tensor.scale)
    wide = emit(relax.op.astype(tensor.data, "int32"))
    wide = emit(relax.op.add(wide, relax.const(SHIFT, "int32")))
    return Quantized(emit(relax.op.astype(wide, "uint8")), zero, tensor.scale)


def _unsigned_source(bindings: Bindings, data: Expr) -> Expr | None:
    """Return the unsigned bytes from which ``_signed`` made signed bytes, or None."""
    narrowed = bindings.call_of(data, "relax.astype")
    if narrowed is None or str(narrowed.ty.dtype) != "int8":
        return None
    tensor = quantized(bindings, narrowed.args[0])
    if tensor is None or tensor.scale is not None or str(tensor.data.ty.dtype) != "uint8":
        return None
    is_shifted = isinstance(tensor.zero, int) and tensor.zero == SHIFT
    return tensor.data if is_shifted else None


def _wide(data: Expr, zero: int, emit: Emit) -> Expr:
    """Convert unscaled bytes to float32 and subtract the zero point."""
    wide = emit(relax.op.astype(data, "int32"))
    if zero:
        wide = emit(relax.op.subtract(wide, relax.const(zero, "int32")))
    return relax.op.astype(wide, "float32")


def requantized(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Return the same value, computed from bytes. None leaves the value unchanged."""
    name = operator_name(value)
    if name in _MOVES and str(value.ty.dtype) == "float32":
        return _moved(bindings, value, emit)
    if name == "relax.astype" and str(value.ty.dtype) in RANGES:
        return _rounded(bindings, value, emit)
    if name == "relax.astype" and str(value.ty.dtype) == "float32":
        return _widened(bindings, value, emit)
    return None


def _widened(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Dequantize the unsigned bytes from which signed bytes are made."""
    tensor = quantized(bindings, value)
    if tensor is None or not isinstance(tensor.zero, int):
        return None
    source = _unsigned_source(bindings, tensor.data)
    return None if source is None else _wide(source, tensor.zero + SHIFT, emit)


def _moved(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Move the bytes, then dequantize them."""
    tensor = quantized(bindings, value.args[0])
    if tensor is None or not isinstance(tensor.zero, int):
        return None
    if bindings.array_of(tensor.data) is not None:
        return None
    # Only with a positive scale is the maximum the dequantized maximum of the bytes.
    if tensor.scale is not None and not tensor.scale > 0:
        return None
    tensor = unsigned(bindings, tensor, emit)
    moved = emit(relax.Call(value.op, [tensor.data, *value.args[1:]], value.attrs))
    single = _wide(moved, tensor.zero, emit)
    if tensor.scale is None:
        return single
    return relax.op.multiply(emit(single), relax.const(tensor.scale, "float32"))


def _rounded(bindings: Bindings, value: Expr, emit: Emit) -> Expr | None:
    """Round to bytes, or return the bytes whose dequantization the rounding undoes."""
    dtype = str(value.ty.dtype)
    low, high = RANGES[dtype]
    clip = bindings.call_of(value.args[0], "relax.clip")
    if clip is None or [float(each.value) for each in clip.args[1:]] != [low, high]:
        return None
    rounded, zero = clip.args[0], 0
    added = bindings.call_of(rounded, "relax.add")
    if added is not None:
        number = known_number(bindings, added.args[1])
        if number is None or static_shape(added) != static_shape(added.args[0]):
            return None
        rounded, zero = added.args[0], int(number)
        if zero != number or not low <= zero <= high:
            return None
    rounding = bindings.call_of(rounded, "relax.round")
    if rounding is None:
        return None
    same = _unrounded(bindings, rounding.args[0], zero, dtype, emit)
    if same is not None:
        return same
    if dtype == "uint8":
        return None
    if zero + SHIFT:
        shift = relax.const(float(zero + SHIFT), "float32")
        rounded = emit(relax.op.add(rounded, shift))
    rounded = emit(relax.op.clip(rounded, 0, 255))
    return _signed(emit(relax.op.astype(rounded, "uint8")), emit)


def _unrounded(bindings: Bindings, scaled: Expr, zero: int, dtype: str, emit: Emit) -> Expr | None:
    """Return the bytes whose dequantization a division by the same scale undoes, or None."""
    divided = bindings.call_of(scaled, "relax.divide")
    tensor = None if divided is None else quantized(bindings, divided.args[0])
    if divided is None or tensor is None or not isinstance(tensor.zero, int):
        return None
    scale = known_number(bindings, divided.args[1])
    if tensor.scale is None or scale is None or np.float32(scale) != tensor.scale:
        return None
    tensor = unsigned(bindings, tensor, emit)
    if tensor.zero != (zero if dtype == "uint8" else zero + SHIFT):
        return None
    if static_shape(tensor.data) != static_shape(scaled):
        return None
    return tensor.data if dtype == "uint8" else _signed(tensor.data, emit)


def _signed(data: Expr, emit: Emit) -> Expr:
    """Make signed bytes from unsigned bytes."""
    wide = emit(relax.op.astype(data, "int32"))
    wide = emit(relax.op.subtract(wide, relax.const(SHIFT, "int32")))
    return relax.op.astype(wide, "int8")
