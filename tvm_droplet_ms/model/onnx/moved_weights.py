# SPDX-License-Identifier: Apache-2.0
"""A copy of an ONNX model whose weights are moved by a rounding error."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ...deviation import moved_by_rounding

if TYPE_CHECKING:
    from onnx import ModelProto

ROUNDING = 2.0**-22
"""Four units of rounding. A sum of a thousand products rounds by about thirty in another order, and
the check allows sixteen times the movement that it sees (``NOISE``)."""

_WEIGHTS = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "Gemm": (1,),
    "MatMul": (0, 1),
    "LSTM": (1, 2),
    "GRU": (1, 2),
    "RNN": (1, 2),
}
"""The inputs of operators that are weights. Other constants may be masks, tables, or extents."""


def move_weights(model: "ModelProto", generator: np.random.Generator) -> "ModelProto":
    """Copy a model, and move the weights that sums of products are made with.

    Each number moves by ``ROUNDING`` of it, up or down by chance. ``model`` is not changed. Weights
    are constants of float32 that an operator of ``_WEIGHTS`` reads. Those of other types, and those
    with numbers that are not finite, stay.
    """
    copy = type(model)()
    copy.CopyFrom(model)
    _move(copy.graph, generator)
    return copy


def _move(graph: Any, generator: np.random.Generator) -> None:
    names = {
        node.input[place]
        for node in graph.node
        for place in _WEIGHTS.get(node.op_type, ())
        if place < len(node.input)
    }
    tensors = [tensor for tensor in graph.initializer if tensor.name in names]
    for node in graph.node:
        is_weight = node.op_type == "Constant" and node.output[0] in names
        tensors += [each.t for each in node.attribute if is_weight and each.name == "value"]
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                _move(inner, generator)
    for tensor in tensors:
        _move_tensor(tensor, generator)


def _move_tensor(tensor: Any, generator: np.random.Generator) -> None:
    from onnx import TensorProto, numpy_helper

    if tensor.data_type != TensorProto.FLOAT:
        return
    array = numpy_helper.to_array(tensor)
    if np.isfinite(array).all():
        moved = moved_by_rounding(array, generator, ROUNDING)
        tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
