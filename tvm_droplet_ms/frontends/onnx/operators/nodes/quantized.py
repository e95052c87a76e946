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
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..operands import UnsupportedNode, dtype_of, shape_of

_EXACT = 1 << 24
"""float32 represents all integers below this number."""

_RANGES = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
}


class QuantizeLinear(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``QuantizeLinear`` to 8 or 16 bits."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, scale, zero = inputs[0], inputs[1], inputs[2]
        dtype = "uint8" if zero is None else dtype_of(zero)
        if attr.get("output_dtype", 0):
            dtype = onnx_frontend.get_type(attr["output_dtype"])
        scale = _aligned(bb, scale, data, attr)
        return quantized(bb, bb.emit(relax.op.divide(data, scale)), zero, dtype, data, attr)


class DequantizeLinear(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``DequantizeLinear``."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, scale, zero = inputs[0], inputs[1], inputs[2]
        dtype = dtype_of(scale)
        if dtype_of(data) not in (*_RANGES, "int32"):
            raise UnsupportedNode(f"its input is of type {dtype_of(data)}")
        value = bb.emit(relax.op.astype(data, "int32"))
        if zero is not None:
            shift = _aligned(bb, bb.emit(relax.op.astype(zero, "int32")), data, attr)
            value = bb.emit(relax.op.subtract(value, shift))
        scale = _aligned(bb, scale, data, attr)
        return relax.op.multiply(relax.op.astype(value, dtype), scale)


class DynamicQuantizeLinear(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``DynamicQuantizeLinear``."""

    @classmethod
    def _impl_v11(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, zero = inputs[0], relax.const(0.0, "float32")
        high = bb.emit(relax.op.maximum(relax.op.max(data), zero))
        low = bb.emit(relax.op.minimum(relax.op.min(data), zero))
        scale = bb.emit(relax.op.divide(relax.op.subtract(high, low), relax.const(255.0)))
        one = relax.const(1.0, "float32")
        scale = bb.emit(relax.op.where(relax.op.equal(high, low), one, scale))
        start = bb.emit(relax.op.round(relax.op.divide(relax.op.negative(low), scale)))
        point = bb.emit(relax.op.astype(relax.op.clip(start, 0, 255), "uint8"))
        divided = bb.emit(relax.op.divide(data, scale))
        return relax.Tuple([quantized(bb, divided, point, "uint8", data, {}), scale, point])


class MatMulInteger(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``MatMulInteger``."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        first = _shifted(bb, inputs[0], _as_column(bb, inputs[2]))
        second = _shifted(bb, inputs[1], inputs[3])
        return relax.op.astype(_product(bb, first, second, inputs), "int32")


class QLinearMatMul(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``QLinearMatMul``."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = list(inputs)
        first = _shifted(bb, a, _as_column(bb, a_zero))
        second = _shifted(bb, b, b_zero)
        total = bb.emit(relax.op.astype(_product(bb, first, second, [a, b]), "float32"))
        a_scale, b_scale, y_scale = (
            bb.emit(relax.op.astype(each, "float32")) for each in (a_scale, b_scale, y_scale)
        )
        scale = bb.emit(relax.op.multiply(_as_column(bb, a_scale), b_scale))
        factor = bb.emit(relax.op.divide(scale, _as_column(bb, y_scale)))
        value = bb.emit(relax.op.multiply(total, factor))
        return quantized(bb, value, _as_column(bb, y_zero), dtype_of(y_zero), value, {})


class ConvInteger(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``ConvInteger``."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data = _shifted(bb, inputs[0], inputs[2])
        weight = _shifted(bb, inputs[1], _along_channels(bb, inputs[1], inputs[3]))
        return _conv(bb, data, weight, attr, params)


class QLinearConv(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts an ONNX ``QLinearConv``."""

    @classmethod
    def _impl_v10(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = list(inputs)[:8]
        total = bb.emit(
            relax.op.astype(_convolution(bb, x, w, x_zero, w_zero, attr, params), "float32")
        )
        ones = [1] * (x.ty.ndim - 2)
        if inputs[8] is not None:
            bias = bb.emit(relax.op.astype(inputs[8], "float32"))
            total = bb.emit(relax.op.add(total, relax.op.reshape(bias, [1, -1, *ones])))
        scale = bb.emit(relax.op.divide(relax.op.multiply(x_scale, w_scale), y_scale))
        if scale.ty.ndim and shape_of(scale) != [1]:
            scale = bb.emit(relax.op.reshape(scale, [1, -1, *ones]))
        value = bb.emit(relax.op.multiply(total, scale))
        return quantized(bb, value, y_zero, dtype_of(y_zero), value, {})


def quantized(bb: Any, value: Any, zero: Any, dtype: str, data: Any, attr: dict[str, Any]) -> Any:
    """Round to even, add the zero point and saturate."""
    if dtype not in _RANGES:
        raise UnsupportedNode(f"its output is of type {dtype}: expected one of {[*_RANGES]}")
    kind = dtype_of(value)
    rounded = bb.emit(relax.op.round(value))
    if zero is not None:
        shift = _aligned(bb, bb.emit(relax.op.astype(zero, kind)), data, attr)
        rounded = bb.emit(relax.op.add(rounded, shift))
    low, high = _RANGES[dtype]
    return bb.emit(relax.op.astype(relax.op.clip(rounded, low, high), dtype))


def _aligned(bb: Any, value: Any, data: Any, attr: dict[str, Any]) -> Any:
    """Make a scale or zero point broadcast: one per tensor, per index of an axis, or per block."""
    shape = shape_of(value)
    if int(np.prod(shape)) == 1:
        return bb.emit(relax.op.reshape(value, [])) if shape else value
    extents = shape_of(data)
    rank, block = len(extents), attr.get("block_size", 0)
    axis = attr.get("axis", 1) % rank if rank > 1 else 0
    if len(shape) == 1 and rank >= 1 and not block:
        return bb.emit(relax.op.reshape(value, [-1 if n == axis else 1 for n in range(rank)]))
    if len(shape) == rank and block:
        spread = bb.emit(relax.op.repeat(value, block, axis))
        return bb.emit(relax.op.strided_slice(spread, [axis], [0], [extents[axis]]))
    return value


def _as_column(bb: Any, value: Any) -> Any:
    """A scale or zero point of the rows of the first factor, as a column."""
    if value is None or len(shape_of(value)) != 1 or shape_of(value) == [1]:
        return value
    return bb.emit(relax.op.expand_dims(value, -1))


def _shifted(bb: Any, data: Any, zero: Any) -> Any:
    """Subtract the zero point from a quantized tensor, in int32."""
    value = bb.emit(relax.op.astype(data, "int32"))
    if zero is None:
        return value
    return bb.emit(relax.op.subtract(value, relax.op.astype(zero, "int32")))


def _product(bb: Any, first: Any, second: Any, inputs: Sequence[Any]) -> Any:
    """The exact product of two factors."""
    if shape_of(first)[-1] * 255 * 255 < _EXACT and not _has_many_bits(inputs[:2]):
        first, second = (bb.emit(relax.op.astype(each, "float32")) for each in (first, second))
    return bb.emit(relax.op.matmul(first, second))


def _has_many_bits(inputs: Sequence[Any]) -> bool:
    return any(dtype_of(each) not in ("int8", "uint8") for each in inputs)


def _convolution(
    bb: Any, x: Any, w: Any, x_zero: Any, w_zero: Any, attr: dict[str, Any], params: Any
) -> Any:
    """The convolution of two quantized tensors.

    It is computed in float32: sums above 2 ** 24 are within one part in ten million of the exact
    sums.
    """
    w_zero = _along_channels(bb, w, w_zero)
    data, weight = (
        bb.emit(relax.op.astype(_shifted(bb, each, zero), "float32"))
        for each, zero in ((x, x_zero), (w, w_zero))
    )
    return _conv(bb, data, weight, attr, params)


def _conv(bb: Any, data: Any, weight: Any, attr: dict[str, Any], params: Any) -> Any:
    arguments = onnx_frontend.onnx_input()
    arguments.extend([data, weight, None])
    return bb.emit(onnx_frontend.Conv.get_converter(11)(bb, arguments, attr, params))


def _along_channels(bb: Any, w: Any, zero: Any) -> Any:
    """The zero points of convolution weights, with the rank of the weights."""
    if zero is None or len(shape_of(zero)) != 1 or shape_of(zero) == [1]:
        return zero
    return bb.emit(relax.op.reshape(zero, [-1] + [1] * (w.ty.ndim - 1)))
