# SPDX-License-Identifier: Apache-2.0
"""A copy of an ONNX model whose weights are moved by a rounding error."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ...deviation import moved_by_rounding

if TYPE_CHECKING:
    from onnx import ModelProto


ROUNDING = 2.0**-22
"""Four units of rounding. A sum of a thousand products rounds by about thirty in another order, and
the check allows sixteen times the movement that it sees (``NOISE``). With one unit a detector
whose float64 run differs from ONNX Runtime's by 3e-4 was refused."""


def move_weights(model: "ModelProto", generator: np.random.Generator) -> "ModelProto":
    """Copy a model, and move each number of its weights by ``ROUNDING`` of it.

    Up or down is left to chance. ``model`` is not changed. Weights are tensors of floating-point
    numbers with two axes or more: fewer may be extents, such as the scales of a ``Resize``, and
    those of quantization are exact.
    """
    copy = type(model)()
    copy.CopyFrom(model)
    _move(copy.graph, generator)
    for function in copy.functions:
        _move_constants(function.node, generator)
    return copy


def _move(graph: Any, generator: np.random.Generator) -> None:
    for tensor in graph.initializer:
        _move_tensor(tensor, generator)
    _move_constants(graph.node, generator)


def _move_constants(nodes: Any, generator: np.random.Generator) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _move_tensor(attribute.t, generator)
            for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                _move(graph, generator)


def _move_tensor(tensor: Any, generator: np.random.Generator) -> None:
    from onnx import TensorProto, numpy_helper

    if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE) and len(tensor.dims) > 1:
        moved = moved_by_rounding(numpy_helper.to_array(tensor), generator, ROUNDING)
        tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
