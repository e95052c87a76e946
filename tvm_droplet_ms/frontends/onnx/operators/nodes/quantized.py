# SPDX-License-Identifier: Apache-2.0
"""Converters for operators on quantized tensors: elementwise operators and products.

TVM's ``quantize`` and ``dequantize`` become functions that graph passes do not look into. Here one
subtraction turns a byte into a number, and sums are exact: in float32 if they stay below 2 ** 24,
and otherwise in int32. Later, products of such numbers are computed in bytes
(:mod:`~tvm_droplet_ms.model.integers`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend

from ..operands import Attributes, UnsupportedNode, converts, dtype_of, part, shape_of, tvms

_EXACT = 1 << 24
"""float32 represents all integers below this number."""

_RANGES = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
}


@converts("QuantizeLinear")
def quantize_linear(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Quantize to 8 or 16 bits."""
    data, scale, zero = inputs[0], inputs[1], inputs[2]
    dtype = "uint8" if zero is None else dtype_of(zero)
    if attr.get("output_dtype", 0):
        dtype = onnx_frontend.get_type(attr["output_dtype"])
    scale = _aligned(bb, scale, data, attr)
    return quantized(bb, bb.emit(data / scale), zero, dtype, data, attr)


@converts("DequantizeLinear")
def dequantize_linear(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Subtract the zero point, and multiply by the scale."""
    data, scale, zero = inputs[0], inputs[1], inputs[2]
    if dtype_of(data) not in (*_RANGES, "int32"):
        raise UnsupportedNode(f"its input is of type {dtype_of(data)}")
    value = bb.emit(data.astype("int32"))
    if zero is not None:
        value = bb.emit(value - _aligned(bb, bb.emit(zero.astype("int32")), data, attr))
    return value.astype(dtype_of(scale)) * _aligned(bb, scale, data, attr)


@converts("DynamicQuantizeLinear")
def dynamic_quantize_linear(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Quantize by the extremes of a tensor. Returns the bytes, the scale and the zero point."""
    data, zero = inputs[0], relax.const(0.0, "float32")
    high = bb.emit(op.maximum(op.max(data), zero))
    low = bb.emit(op.minimum(op.min(data), zero))
    scale = bb.emit((high - low) / relax.const(255.0))
    scale = bb.emit(op.where(op.equal(high, low), relax.const(1.0, "float32"), scale))
    point = bb.emit(op.clip(op.round(-low / scale), 0, 255).astype("uint8"))
    rounded = quantized(bb, bb.emit(data / scale), point, "uint8", data, {})
    return relax.Tuple([rounded, scale, point])


@converts("MatMulInteger")
def mat_mul_integer(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A product of bytes in int32."""
    first = _shifted(bb, inputs[0], _as_column(bb, inputs[2]))
    second = _shifted(bb, inputs[1], inputs[3])
    return _product(bb, first, second, inputs).astype("int32")


@converts("QLinearMatMul")
def qlinear_mat_mul(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A product of bytes, quantized again."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = list(inputs)
    first = _shifted(bb, a, _as_column(bb, a_zero))
    second = _shifted(bb, b, b_zero)
    total = bb.emit(_product(bb, first, second, [a, b]).astype("float32"))
    a_scale, b_scale, y_scale = (
        bb.emit(each.astype("float32")) for each in (a_scale, b_scale, y_scale)
    )
    scale = bb.emit(_as_column(bb, a_scale) * b_scale)
    value = bb.emit(total * (scale / _as_column(bb, y_scale)))
    return quantized(bb, value, _as_column(bb, y_zero), dtype_of(y_zero), value, {})


@converts("ConvInteger")
def conv_integer(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A convolution of bytes in int32."""
    data = _shifted(bb, inputs[0], inputs[2])
    weight = _shifted(bb, inputs[1], _along_channels(bb, inputs[1], inputs[3]))
    return convolution(bb, [data, weight], attr)


@converts("QLinearConv")
def qlinear_conv(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A convolution of bytes, quantized again.

    It is computed in float32: sums above 2 ** 24 are within one part in ten million of the exact
    sums.
    """
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = list(inputs)[:8]
    zeros = x_zero, _along_channels(bb, w, w_zero)
    factors = [
        bb.emit(_shifted(bb, each, zero).astype("float32"))
        for each, zero in zip((x, w), zeros, strict=True)
    ]
    total = bb.emit(convolution(bb, factors, attr).astype("float32"))
    ones = [1] * (x.ty.ndim - 2)
    if inputs[8] is not None:
        bias = bb.emit(inputs[8].astype("float32"))
        total = bb.emit(total + op.reshape(bias, [1, -1, *ones]))
    scale = bb.emit(x_scale * w_scale / y_scale)
    if scale.ty.ndim and shape_of(scale) != [1]:
        scale = bb.emit(op.reshape(scale, [1, -1, *ones]))
    value = bb.emit(total * scale)
    return quantized(bb, value, y_zero, dtype_of(y_zero), value, {})


def quantized(bb: Any, value: Any, zero: Any, dtype: str, data: Any, attr: Attributes) -> Any:
    """Round to even, add the zero point and saturate."""
    if dtype not in _RANGES:
        raise UnsupportedNode(f"its output is of type {dtype}: expected one of {[*_RANGES]}")
    rounded = bb.emit(op.round(value))
    if zero is not None:
        shift = bb.emit(zero.astype(dtype_of(value)))
        rounded = bb.emit(rounded + _aligned(bb, shift, data, attr))
    return bb.emit(op.clip(rounded, *_RANGES[dtype]).astype(dtype))


def convolution(bb: Any, inputs: Sequence[Any], attr: Attributes) -> Any:
    """A plain convolution of data, weights and, if there is one, a bias."""
    return bb.emit(tvms("Conv", bb, inputs, attr, 11))


def _aligned(bb: Any, value: Any, data: Any, attr: Attributes) -> Any:
    """Make a scale or zero point broadcast: one per tensor, per index of an axis, or per block."""
    shape = shape_of(value)
    if int(np.prod(shape)) == 1:
        return bb.emit(op.reshape(value, [])) if shape else value
    extents = shape_of(data)
    rank, block = len(extents), attr.get("block_size", 0)
    axis = attr.get("axis", 1) % rank if rank > 1 else 0
    if len(shape) == 1 and rank >= 1 and not block:
        return bb.emit(op.reshape(value, [-1 if n == axis else 1 for n in range(rank)]))
    if len(shape) == rank and block:
        return bb.emit(part(op.repeat(value, block, axis), axis, 0, extents[axis]))
    return value


def _is_list(value: Any) -> bool:
    return value is not None and len(shape_of(value)) == 1 and shape_of(value) != [1]


def _as_column(bb: Any, value: Any) -> Any:
    """A scale or zero point of the rows of the first factor, as a column."""
    return bb.emit(op.expand_dims(value, -1)) if _is_list(value) else value


def _along_channels(bb: Any, w: Any, zero: Any) -> Any:
    """The zero points of convolution weights, with the rank of the weights."""
    return bb.emit(op.reshape(zero, [-1] + [1] * (w.ty.ndim - 1))) if _is_list(zero) else zero


def _shifted(bb: Any, data: Any, zero: Any) -> Any:
    """Subtract the zero point from a quantized tensor, in int32."""
    value = bb.emit(data.astype("int32"))
    return value if zero is None else bb.emit(value - zero.astype("int32"))


def _product(bb: Any, first: Any, second: Any, inputs: Sequence[Any]) -> Any:
    """The exact product of two factors."""
    are_bytes = all(dtype_of(each) in ("int8", "uint8") for each in inputs[:2])
    if shape_of(first)[-1] * 255 * 255 < _EXACT and are_bytes:
        first, second = (bb.emit(each.astype("float32")) for each in (first, second))
    return bb.emit(op.matmul(first, second))
