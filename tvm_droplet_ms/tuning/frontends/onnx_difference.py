# SPDX-License-Identifier: Apache-2.0
"""Finds the node of an ONNX model that TVM's import computes otherwise than ONNX Runtime."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tvm.ir import IRModule

from ...deviation import deviation
from ...model.onnx.order import named
from .imported import Arrays
from .onnx_reference import onnx_runtime

if TYPE_CHECKING:
    import onnx

LIMIT = 1e-2
"""The deviation of a node's output that is no rounding."""


def first_different_node(
    model: "onnx.ModelProto",
    names: Sequence[str],
    load: Callable[["onnx.ModelProto"], IRModule],
    inputs: Sequence[np.ndarray],
    compile_mod: Callable[[IRModule], Callable[[Sequence[np.ndarray]], Arrays]],
) -> str:
    """Run a model with every value of its graph as an output, in both.

    - ``model``: the model that was imported, its nodes in order.
    - ``names``: the inputs, in the order in which they are given.
    - ``load``: the importer.
    - ``compile_mod``: compiles a module, without any pass of ours and without schedules.

    Returns the first node whose output differs, in words; empty where none does, or ONNX Runtime
    cannot run the model.
    """
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model).graph
    values = [*inferred.value_info, *inferred.output]
    floats = {
        value.name: value
        for value in values
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    makers = [
        (node, output) for node in model.graph.node for output in node.output if output in floats
    ]
    exposed = type(model)()
    exposed.CopyFrom(model)
    del exposed.graph.output[:]
    exposed.graph.output.extend(floats[output] for _, output in makers)
    reference, _ = onnx_runtime(exposed, names, {}, 1)
    if reference is None or not makers:
        return ""
    found = compile_mod(load(exposed))(inputs)
    for (node, _), ours, theirs in zip(makers, found, reference.run(inputs), strict=True):
        if deviation(ours, theirs) > LIMIT:
            return named(node)
    return ""
