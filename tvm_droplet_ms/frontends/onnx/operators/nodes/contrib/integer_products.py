# SPDX-License-Identifier: Apache-2.0
"""Converters for ONNX Runtime's products of bytes with floating-point results."""

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ..quantized import DynamicQuantizeLinear, MatMulInteger


class MatMulIntegerToFloat(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``MatMulIntegerToFloat``: a scaled product of bytes, and a bias."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        a, b, a_scale, b_scale, a_zero, b_zero, bias = (inputs[n] for n in range(7))
        return _to_float(bb, [a, b, a_zero, b_zero], a_scale, b_scale, bias)


class DynamicQuantizeMatMul(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``DynamicQuantizeMatMul``: the first factor is quantized at run time."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, b, b_scale, b_zero, bias = (inputs[n] for n in range(5))
        a, a_scale, a_zero = DynamicQuantizeLinear._impl_v11(bb, [data], {}, params).fields
        factors = [bb.emit(a), b, bb.emit(a_zero), b_zero]
        return _to_float(bb, factors, bb.emit(a_scale), b_scale, bias)


def _to_float(bb: Any, factors: Sequence[Any], a_scale: Any, b_scale: Any, bias: Any) -> Any:
    sums = bb.emit(MatMulInteger._impl_v10(bb, factors, {}, None))
    scale = bb.emit(relax.op.multiply(a_scale, b_scale))
    result = relax.op.multiply(relax.op.astype(sums, "float32"), scale)
    return result if bias is None else relax.op.add(result, bias)
