# SPDX-License-Identifier: Apache-2.0
"""Converters for products, convolutions and activations that ONNX Runtime's optimizer fuses."""

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
        given = {
            name: attr[f"activation_{name}"]
            for name in ("alpha", "beta", "gamma")
            if f"activation_{name}" in attr
        }
        return _activated(bb, result, text(attr, "activation", ""), given)


class FusedConv(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``FusedConv``: a convolution, an added tensor, and an activation."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        own = onnx_frontend.onnx_input()
        own.extend(inputs[:3])
        convert = onnx_frontend.Conv.get_converter(11)
        result = bb.emit(convert(bb, own, attr, params))
        if inputs[3] is not None:
            result = bb.emit(relax.op.add(result, inputs[3]))
        name = text(attr, "activation", "")
        numbers = attr.get("activation_params", ())
        return _activated(bb, result, name, dict(zip(_PARAMETERS.get(name, ()), numbers)))


class QuickGelu(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``QuickGelu``: x * sigmoid(alpha * x)."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        scaled = _scaled(bb, inputs[0], attr.get("alpha", 1.702))
        return relax.op.multiply(inputs[0], bb.emit(relax.op.sigmoid(scaled)))


class CDist(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``CDist``: the distances between the rows of two matrices."""

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
    """Move the batch axes of a factor to the front, and then swap its last two axes.

    ``is_turned``: whether to swap (``transA``, ``transB``). ``is_batch_inside``: whether the axes
    are (rows, batch..., columns) (``transBatchA``, ``transBatchB`` in ContribOperators.md).
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


_PARAMETERS = {
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}
"""The parameters of activations, in the order of ``activation_params``."""


def _activated(bb: Any, value: Any, name: str, given: dict[str, float]) -> Any:
    """Apply an activation by name and parameters, as ONNX defines it."""

    def number(parameter: str, default: float) -> Any:
        return relax.const(float(given.get(parameter, default)), dtype_of(value))

    zero, one = number("", 0.0), number("", 1.0)
    if not name:
        return value
    if name == "Relu":
        return relax.op.nn.relu(value)
    if name == "Tanh":
        return relax.op.tanh(value)
    if name == "Sigmoid":
        return relax.op.sigmoid(value)
    if name == "Softplus":
        return relax.op.nn.softplus(value)
    if name == "Softsign":
        return relax.op.divide(value, relax.op.add(one, relax.op.abs(value)))
    if name == "LeakyRelu":
        return relax.op.nn.leakyrelu(value, float(given.get("alpha", 0.01)))
    if name == "ThresholdedRelu":
        is_kept = bb.emit(relax.op.greater(value, number("alpha", 1.0)))
        return relax.op.where(is_kept, value, zero)
    if name in ("Elu", "Selu"):
        alpha = number("alpha", 1.0 if name == "Elu" else 1.67326319217681884765625)
        below = relax.op.multiply(alpha, relax.op.subtract(relax.op.exp(value), one))
        is_above = bb.emit(relax.op.greater(value, zero))
        curve = bb.emit(relax.op.where(is_above, value, bb.emit(below)))
        gamma = number("gamma", 1.0 if name == "Elu" else 1.05070102214813232421875)
        return relax.op.multiply(gamma, curve)
    if name == "Clip":
        bounded = relax.op.maximum(value, number("min", -3.4028234e38))
        return relax.op.minimum(bounded, number("max", 3.4028234e38))
    if name == "HardSigmoid":
        line = relax.op.add(relax.op.multiply(value, number("alpha", 0.2)), number("beta", 0.5))
        return relax.op.minimum(relax.op.maximum(line, zero), one)
    raise UnsupportedNode(f"its activation is {name!r}, which is not supported")
