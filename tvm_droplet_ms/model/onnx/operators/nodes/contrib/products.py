# SPDX-License-Identifier: Apache-2.0
"""Converters for what ONNX Runtime's optimiser makes of products, convolutions and activations."""

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ...operands import UnsupportedNode, dtype_of, shape_of, text


class FusedMatMul(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``FusedMatMul``: a scaled product of tensors that may be transposed."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        factors = [
            _transposed(bb, value, attr.get(f"trans{name}", 0), attr.get(f"transBatch{name}", 0))
            for name, value in zip("AB", inputs[:2], strict=True)
        ]
        product = bb.emit(relax.op.matmul(*factors))
        return _scaled(bb, product, attr.get("alpha", 1.0))


class TransposeMatMul(FusedMatMul):
    """Converts ``TransposeMatMul``, the older name."""


class FusedGemm(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``FusedGemm``: a ``Gemm`` and an activation."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        factors = [
            _transposed(bb, value, attr.get(f"trans{name}", 0), 0)
            for name, value in zip("AB", inputs[:2], strict=True)
        ]
        result = _scaled(bb, bb.emit(relax.op.matmul(*factors)), attr.get("alpha", 1.0))
        if inputs[2] is not None:
            result = bb.emit(relax.op.add(result, _scaled(bb, inputs[2], attr.get("beta", 1.0))))
        name, given = text(attr, "activation", ""), attr
        names = ("activation_alpha", "activation_beta")
        numbers = [given[each] for each in names if each in given]
        return _activated(bb, result, name, numbers)


class FusedConv(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``FusedConv``: a convolution, a tensor that is added, and an activation."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        own = onnx_frontend.onnx_input()
        own.extend(inputs[:3])
        convert = onnx_frontend.Conv.get_converter(11)
        result = bb.emit(convert(bb, own, attr, params))
        if inputs[3] is not None:
            result = bb.emit(relax.op.add(result, inputs[3]))
        name = text(attr, "activation", "")
        return _activated(bb, result, name, list(attr.get("activation_params", ())))


class QuickGelu(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``QuickGelu``: x * sigmoid(alpha * x)."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        scaled = _scaled(bb, inputs[0], attr.get("alpha", 1.702))
        return relax.op.multiply(inputs[0], bb.emit(relax.op.sigmoid(scaled)))


class CDist(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``CDist``: the distances of the rows of two matrices."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        metric = text(attr, "metric", "sqeuclidean")
        if metric not in ("euclidean", "sqeuclidean"):
            raise UnsupportedNode(f"its metric is {metric!r}: expected euclidean or sqeuclidean")
        one, other = (
            bb.emit(relax.op.expand_dims(value, axis))
            for value, axis in zip(inputs[:2], (1, 0), strict=True)
        )
        gap = bb.emit(relax.op.subtract(one, other))
        squares = bb.emit(relax.op.sum(relax.op.multiply(gap, gap), -1))
        return squares if metric == "sqeuclidean" else relax.op.sqrt(squares)


def _transposed(bb: Any, value: Any, is_turned: int, is_batch_inside: int) -> Any:
    """A factor: its last two axes swapped, and before that its batch axis moved to the front.

    ``transBatch``: the axes are (rows, batch..., columns) (``GetTransposedShape``'s doc in
    ContribOperators.md).
    """
    rank = len(shape_of(value))
    order = list(range(rank))
    if is_batch_inside and rank > 2:
        order = [*order[1:-1], order[0], order[-1]]
    if is_turned and rank > 1:
        order = [*order[:-2], order[-1], order[-2]]
    if order == list(range(rank)):
        return value
    return bb.emit(relax.op.permute_dims(value, order))


def _scaled(bb: Any, value: Any, factor: float) -> Any:
    if factor == 1.0:
        return value
    return bb.emit(relax.op.multiply(value, relax.const(float(factor), dtype_of(value))))


def _activated(bb: Any, value: Any, name: str, numbers: Sequence[float]) -> Any:
    """An activation by its name, with its parameters."""
    dtype = dtype_of(value)
    if not name:
        return value
    if name == "Relu":
        return relax.op.nn.relu(value)
    if name == "Tanh":
        return relax.op.tanh(value)
    if name == "Sigmoid":
        return relax.op.sigmoid(value)
    if name == "LeakyRelu":
        slope = numbers[0] if numbers else 0.01
        return relax.op.nn.leakyrelu(value, slope)
    if name == "Clip":
        low, high = numbers if len(numbers) == 2 else (-3.4e38, 3.4e38)
        bounded = relax.op.maximum(value, relax.const(low, dtype))
        return relax.op.minimum(bounded, relax.const(high, dtype))
    if name == "HardSigmoid":
        slope, shift = numbers if len(numbers) == 2 else (0.2, 0.5)
        line = relax.op.add(
            relax.op.multiply(value, relax.const(slope, dtype)), relax.const(shift, dtype)
        )
        bounded = relax.op.maximum(line, relax.const(0.0, dtype))
        return relax.op.minimum(bounded, relax.const(1.0, dtype))
    raise UnsupportedNode(f"its activation is {name!r}, which is not supported")
