# SPDX-License-Identifier: Apache-2.0
"""Converters for what ONNX Runtime's optimizer makes: fused products, and quantized operators."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax import op

from ...folding import as_array
from ...operands import (
    Attributes,
    UnsupportedNode,
    constant,
    dtype_of,
    float32,
    number,
    shape_of,
    standard,
    text,
)
from ...operands import converts as converts_standard
from ..quantized import (
    convolution,
    dequantize_linear,
    dynamic_quantize_linear,
    mat_mul_integer,
    quantize_linear,
)
from . import converts


@converts("FusedMatMul", "TransposeMatMul")
def fused_mat_mul(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A scaled product of tensors that may be transposed."""
    return _scaled(_product(bb, inputs, attr), attr.get("alpha", 1.0))


@converts("FusedGemm")
def fused_gemm(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A ``Gemm`` and an activation."""
    result = bb.emit(_scaled(_product(bb, inputs, attr), attr.get("alpha", 1.0)))
    if inputs[2] is not None:
        result = bb.emit(result + _scaled(inputs[2], attr.get("beta", 1.0)))
    given = {name: attr.get(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    return _activated(bb, result, text(attr, "activation", ""), given)


@converts("FusedConv")
def fused_conv(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A convolution, an added tensor, and an activation."""
    result = convolution(bb, inputs[:3], attr)
    if inputs[3] is not None:
        result = bb.emit(result + inputs[3])
    name = text(attr, "activation", "")
    given = dict(zip(_ACTIVATIONS.get(name, ()), attr.get("activation_params", ())))
    return _activated(bb, result, name, given)


@converts("QuickGelu")
def quick_gelu(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """x * sigmoid(alpha * x)."""
    return inputs[0] * op.sigmoid(_scaled(inputs[0], attr.get("alpha", 1.702)))


@converts("CDist")
def cdist(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The distances between the rows of two matrices."""
    metric = text(attr, "metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise UnsupportedNode(f"its metric is {metric!r}: expected euclidean or sqeuclidean")
    gap = bb.emit(op.expand_dims(inputs[0], 1) - op.expand_dims(inputs[1], 0))
    squares = bb.emit(op.sum(gap * gap, -1))
    return squares if metric == "sqeuclidean" else op.sqrt(squares)


def _product(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The product of the first two inputs, each transposed as its attributes say."""
    factors = [
        _transposed(value, attr.get(f"trans{name}", 0), attr.get(f"transBatch{name}", 0))
        for name, value in zip("AB", inputs[:2], strict=True)
    ]
    return bb.emit(op.matmul(*factors))


def _transposed(value: Any, is_turned: int, is_batch_inside: int) -> Any:
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
    return value if order == list(range(rank)) else op.permute_dims(value, order)


def _scaled(value: Any, factor: float) -> Any:
    return value if factor == 1.0 else value * number(float(factor), value)


_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    **{name: () for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")},
    **{name: ("alpha",) for name in ("Elu", "LeakyRelu", "ThresholdedRelu")},
    "Selu": ("alpha", "gamma"),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}
"""The parameters of activations, in the order of ``activation_params``."""


def _activated(bb: Any, value: Any, name: str, given: dict[str, float | None]) -> Any:
    """Apply an activation by name and parameters: ONNX's operator of that name."""
    if not name:
        return value
    if name not in _ACTIVATIONS:
        raise UnsupportedNode(f"its activation is {name!r}, which is not supported")
    known = {of: number for of, number in given.items() if number is not None}
    # In this version, the limits of a ``Clip`` are attributes.
    return standard(name, bb, [value], {**known, "tvm_custom": {"opset": 6, "num_outputs": 1}})


@converts("MatMulIntegerToFloat")
def mat_mul_integer_to_float(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A scaled product of bytes, and a bias."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (inputs[n] for n in range(7))
    return _to_float(bb, [a, b, a_zero, b_zero], a_scale, b_scale, bias)


@converts("DynamicQuantizeMatMul")
def dynamic_quantize_mat_mul(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The first factor is quantized at run time."""
    data, b, b_scale, b_zero, bias = (inputs[n] for n in range(5))
    a, a_scale, a_zero = map(bb.emit, dynamic_quantize_linear(bb, [data], {}).fields)
    return _to_float(bb, [a, b, a_zero, b_zero], a_scale, b_scale, bias)


def _to_float(bb: Any, factors: Sequence[Any], a_scale: Any, b_scale: Any, bias: Any) -> Any:
    sums = bb.emit(mat_mul_integer(bb, factors, {}))
    result = sums.astype("float32") * (a_scale * b_scale)
    return result if bias is None else result + bias


def _quantized(kind: str, bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Apply a standard operator to dequantized operands, and quantize the result."""
    given = list(inputs)
    if kind == "Concat":
        result, operands = given[:2], given[2:]
    else:
        # Trailing zero points may be omitted.
        given += [None] * (len(given) % 3 == 1)
        result, operands = given[-2:], given[:-2]
    attr = {name: value for name, value in attr.items() if name != "channels_last"}
    values = [_dequantized(bb, operands[n : n + 3]) for n in range(0, len(operands), 3)]
    return quantize_linear(bb, [bb.emit(standard(kind, bb, values, attr)), *result], {})


for _name in ("Add", "AveragePool", "Concat", "GlobalAveragePool", "LeakyRelu", "Mul", "Sigmoid"):
    converts(f"QLinear{_name}")(partial(_quantized, _name))


@converts("QGemm")
def qgemm(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A ``Gemm`` of dequantized operands, quantized again if it has a scale of its result."""
    bias, y_scale, y_zero = (inputs[n] for n in (6, 7, 8))
    scales = [as_array(inputs[n]) for n in (1, 4)]
    if scales[0] is None or scales[1] is None:
        raise UnsupportedNode("the operator is not supported")
    operands = [
        _dequantized(bb, [inputs[0], inputs[1], inputs[2]]),
        _dequantized(bb, [inputs[3], inputs[4], inputs[5]], 0 if attr.get("transB", 0) else 1),
    ]
    if bias is not None:
        scale = np.float32(attr.get("alpha", 1.0)) * scales[0] * scales[1]
        operands.append(_dequantized(bb, [bias, float32(scale), None], -1))
    result = standard("Gemm", bb, operands, attr)
    return (
        result if y_scale is None else quantize_linear(bb, [bb.emit(result), y_scale, y_zero], {})
    )


def _dequantized(bb: Any, operand: Sequence[Any], axis: int = 1) -> Any:
    value, scale, zero = [*operand, None][:3]
    return bb.emit(dequantize_linear(bb, [value, scale, zero], {"axis": axis}))


@converts("SkipLayerNormalization")
def skip_layer_normalization(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The layer normalization of a sum."""
    data, skip, scale, shift, bias = (inputs[n] for n in range(5))
    total = _sum(bb, data, skip, bias)
    if shift is None:
        shift = constant(np.zeros(shape_of(scale)), dtype_of(scale))
    epsilon = float(attr.get("epsilon", 1e-12))
    return _with_sum(bb.emit(op.nn.layer_norm(total, scale, shift, [-1], epsilon)), total, attr)


@converts("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The RMS normalization of a sum."""
    total = _sum(bb, inputs[0], inputs[1], inputs[3])
    epsilon = float(attr.get("epsilon", 1e-12))
    return _with_sum(bb.emit(op.nn.rms_norm(total, inputs[2], [-1], epsilon)), total, attr)


@converts("SimplifiedLayerNormalization")
@converts_standard("SimplifiedLayerNormalization")  # ONNX Runtime puts it there, too.
def simplified_layer_normalization(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """ONNX's ``RMSNormalization`` before version 23."""
    data, rank = inputs[0], len(shape_of(inputs[0]))
    axes = list(range(int(attr.get("axis", -1)) % rank, rank))
    epsilon = float(attr.get("epsilon", 1e-5))
    if axes[0] == 0:
        # TVM's kernel requires an axis before the normalized axes.
        row, scale = op.reshape(data, [1, -1]), op.reshape(inputs[1], [-1])
        row = op.nn.rms_norm(row, scale, [1], epsilon)
        normalized = bb.emit(op.reshape(row, shape_of(data)))
    else:
        normalized = bb.emit(op.nn.rms_norm(data, inputs[1], axes, epsilon))
    if attr["tvm_custom"]["num_outputs"] == 1:
        return normalized
    squares = op.mean(data * data, axes, keepdims=True)
    return relax.Tuple([normalized, bb.emit(op.rsqrt(squares + number(epsilon, data)))])


def _sum(bb: Any, data: Any, skip: Any, bias: Any) -> Any:
    """The sum to normalize. ``skip`` may have a batch of one, or no batch axis."""
    return bb.emit(data + skip if bias is None else data + skip + bias)


def _with_sum(normalized: Any, total: Any, attr: Attributes) -> Any:
    """The outputs. The second and third are only for training."""
    names = attr["tvm_custom"]["outputs"]
    if any(names[1:3]):
        raise UnsupportedNode("its outputs for training (mean, inv_std_var) are not supported")
    return normalized if len(names) == 1 else relax.Tuple([normalized, total, total, total])
