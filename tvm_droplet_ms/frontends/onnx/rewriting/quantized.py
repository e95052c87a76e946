# SPDX-License-Identifier: Apache-2.0
"""Rewrite ONNX Runtime's quantized operators as dequantization, operator and quantization."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto

from .graph import OnnxGraph, attributes_of

_KINDS = {
    "QLinearAdd": "Add",
    "QLinearAveragePool": "AveragePool",
    "QLinearConcat": "Concat",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearMul": "Mul",
    "QLinearSigmoid": "Sigmoid",
}
"""Map from ONNX Runtime's operators to the operators that they apply to dequantized inputs."""


def expand_quantized(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Expand a quantized operator of ONNX Runtime into ONNX operators.

    None for any other operator, for channels-last activations, and for a ``QGemm`` whose scales are
    not constant.
    """
    attributes = attributes_of(node)
    if node.domain != "com.microsoft" or attributes.pop("channels_last", 0):
        return None
    if node.op_type == "QGemm":
        return _gemm(graph, node, attributes)
    kind = _KINDS.get(node.op_type)
    if kind is None:
        return None
    inputs = list(node.input)
    if kind == "Concat":
        result, operands = inputs[:2], inputs[2:]
    else:
        # Trailing zero points may be omitted.
        inputs += [""] * (len(inputs) % 3 == 1)
        result, operands = inputs[-2:], inputs[:-2]
    nodes: list[NodeProto] = []
    values = [_dequantized(graph, nodes, operands[n : n + 3]) for n in range(0, len(operands), 3)]
    nodes.append(graph.make_node(kind, values, graph.new_name(f"{node.output[0]}_wide")))
    graph.set_attributes(nodes[-1], **attributes)
    nodes.append(graph.make_node("QuantizeLinear", [*nodes[-1].output, *result], node.output[0]))
    return nodes


def _gemm(graph: OnnxGraph, node: NodeProto, attributes: dict[str, Any]) -> list[NodeProto] | None:
    inputs = [*node.input, "", "", ""]
    bias, y_scale, y_zero = inputs[6:9]
    a_scale, b_scale = graph.constant(inputs[1]), graph.constant(inputs[4])
    if a_scale is None or b_scale is None:
        return None
    axis = 0 if attributes.get("transB", 0) else 1
    nodes: list[NodeProto] = []
    operands = [
        _dequantized(graph, nodes, inputs[:3]),
        _dequantized(graph, nodes, inputs[3:6], axis),
    ]
    if bias:
        scale = np.float32(attributes.get("alpha", 1.0)) * a_scale * b_scale
        name = graph.new_name(f"{node.output[0]}_scale")
        nodes.append(graph.make_constant(scale.astype(np.float32), name))
        operands.append(_dequantized(graph, nodes, [bias, name], -1))
    output = graph.new_name(f"{node.output[0]}_wide") if y_scale else node.output[0]
    nodes.append(graph.make_node("Gemm", operands, output))
    graph.set_attributes(nodes[-1], **attributes)
    if y_scale:
        result = [output, y_scale, y_zero]
        nodes.append(graph.make_node("QuantizeLinear", result, node.output[0]))
    return nodes


def _dequantized(
    graph: OnnxGraph, nodes: list[NodeProto], operand: Sequence[str], axis: int | None = None
) -> str:
    """Add a node that dequantizes an operand. Return the name of the result."""
    name = graph.new_name(f"{operand[0]}_wide")
    nodes.append(graph.make_node("DequantizeLinear", operand, name))
    if axis is not None:
        graph.set_attributes(nodes[-1], axis=axis)
    return name
