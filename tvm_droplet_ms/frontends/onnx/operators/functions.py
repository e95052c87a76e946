# SPDX-License-Identifier: Apache-2.0
"""Expand operators that ONNX defines as functions of other operators.

The library ``onnx`` inlines the function bodies, for the attributes of the node and the types of
its inputs.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import onnx

from tvm import relax

from ..folding import fold_constants
from ..order import is_standard

_LOCAL = "droplet"
"""The domain of temporary functions, which are inlined at once."""


def expand_function(node: Any, inputs: Sequence[Any], opset: int) -> Any | None:
    """Expand a node into its function body.

    ``inputs``: the node's inputs, whose types must be known. ``opset``: version of the standard
    operators. Returns a graph with the input and output names of the node and with unrolled loops.
    None if ONNX does not define the operator as a function.
    """
    from onnx.inliner import inline_selected_functions

    if not is_standard(node) or not _has_body(node.op_type, opset):
        return None
    node = _with_defaults(node, opset)
    values = {}
    for name, value in zip(node.input, inputs, strict=True):
        if name:
            values[name] = _value_info(name, value)
    outputs = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "function", list(values.values()), outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        expanded = inline_selected_functions(
            model, [("", node.op_type)], inline_schema_functions=True
        ).graph
    except RuntimeError:
        # The inliner needs the types of all inputs, including omitted ones.
        expanded = _through_local_function(model, values)
    if any(each.op_type == node.op_type for each in expanded.node):
        return None
    if any(each.op_type in ("Loop", "Scan") for each in expanded.node):
        model = onnx.helper.make_model(expanded, opset_imports=model.opset_import[:1])
        fold_constants(model)
        expanded = model.graph
    return expanded


def _with_defaults(node: Any, opset: int) -> Any:
    """Copy a node with default attributes filled in: the inliner does not look them up."""
    copy = deepcopy(node)
    given = {each.name for each in node.attribute}
    for each in onnx.defs.get_schema(node.op_type, opset).attributes.values():
        if each.name not in given and each.default_value.name:
            copy.attribute.append(each.default_value)
    return copy


def _through_local_function(model: Any, values: dict[str, Any]) -> Any:
    """Expand the only node of a model through a function of the model itself."""
    from onnx.inliner import inline_local_functions

    (node,) = model.graph.node
    opset = model.opset_import[0].version
    schema = onnx.defs.get_schema(node.op_type, opset)
    version = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
    types = [values[name].type if name else onnx.TypeProto() for name in node.input]
    function = onnx.FunctionProto()
    function.ParseFromString(
        schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), [each.SerializeToString() for each in types]
        )
    )
    function.domain = node.domain = _LOCAL
    model.functions.append(function)
    model.opset_import.append(onnx.helper.make_opsetid(_LOCAL, 1))
    return inline_local_functions(model).graph


def _has_body(name: str, opset: int) -> bool:
    if not onnx.defs.has(name, opset):
        return False
    schema = onnx.defs.get_schema(name, opset)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _value_info(name: str, value: Any) -> Any:
    kind = np.dtype("int64")
    shape: list[int | None] = []
    if isinstance(value.ty, relax.TensorType):
        kind = np.dtype(str(value.ty.dtype))
        shape = [int(extent) for extent in value.ty.shape]
    return onnx.helper.make_tensor_value_info(
        name, onnx.helper.np_dtype_to_tensor_dtype(kind), shape
    )


def is_better_expanded(node: Any, inputs: Sequence[Any]) -> bool:
    """True if TVM's converter of a node is wrong and ONNX's function body is right.

    TVM 0.27 returns constants for the mean and the deviation of a ``LayerNormalization``, and
    cannot compile an ``RMSNormalization`` over all axes.
    """
    if node.op_type == "LayerNormalization":
        return any(node.output[1:])
    if node.op_type == "RMSNormalization":
        axis = {each.name: each.i for each in node.attribute}.get("axis", -1)
        return int(axis) % int(inputs[0].ty.ndim) == 0
    return False
