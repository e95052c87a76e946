# SPDX-License-Identifier: Apache-2.0
"""Compute nodes of constant inputs while a model is imported, and expand functions of ONNX.

TVM folds few of them, and then cannot import operators that depend on a computed shape. The bodies
of functions and the branches of an ``If`` become known only during the import.
"""

from collections.abc import Sequence
from copy import deepcopy
from math import prod
from typing import Any

import numpy as np
import onnx

import tvm
from tvm import relax
from tvm.ir import GenericConst

from ..evaluation import evaluate_node, extents_of, is_quantized_weight
from ..folding import RANDOM, fold_constants
from ..order import is_standard

Array = np.ndarray[Any, Any]

_MOST_INPUT = 1 << 14
_MOST_OUTPUT = 1 << 20
"""Maximum numbers of input and output elements. Larger nodes are left to later passes."""

_NOT_FOLDED = {*RANDOM, "Loop", "Scan", "If"}


def fold_node(node: Any, inputs: Sequence[Any], opset: int) -> list[Any] | None:
    """Compute the outputs of a node from constant inputs.

    ``opset``: version of the standard operators. None if an input is not a small constant, or if
    the node is random or not supported here.
    """
    if not is_standard(node):
        return None
    if node.op_type in ("Shape", "Size"):
        return _shape(node, inputs[0])
    if node.op_type in _NOT_FOLDED:
        return None
    if node.op_type == "Constant":
        return _constant(node)
    # Large constants are not copied to NumPy.
    if not inputs or any(
        isinstance(value, tvm.ir.Var | tvm.ir.Call) or _is_large(value) for value in inputs
    ):
        return None
    arrays = [as_array(value) for value in inputs]
    if arrays[0] is not None and is_quantized_weight(node, arrays[0]):
        return None
    if any(a is None and b is not None for a, b in zip(arrays, inputs, strict=True)):
        return None
    pairs = zip(node.input, arrays, strict=True)
    known = {name: array for name, array in pairs if array is not None}
    if sum(array.size for array in known.values()) > _MOST_INPUT:
        return None
    found = evaluate_node(node, known, {"": opset})
    if found is None or any(name not in found for name in node.output):
        return None
    outputs = [found[name] for name in node.output]
    if any(each.dtype.kind not in "fiub" for each in outputs):
        return None
    if sum(output.size for output in outputs) > _MOST_OUTPUT:
        return None
    return [relax.const(output, str(output.dtype)) for output in outputs]


def as_array(value: Any) -> Array | None:
    """The values of a constant, a number or a known shape. None for other values."""
    if isinstance(value, GenericConst):
        array: Array = value.value.numpy()
        return array if array.dtype.kind in "fiub" else None
    if isinstance(value, relax.ShapeExpr):
        return _extents(list(value.values))
    if isinstance(value, tvm.tirx.IntImm):
        return np.array(value.value, np.int64)
    return None


def _is_large(value: Any) -> bool:
    """True if a constant has more elements than ``_MOST_INPUT``."""
    if not isinstance(value, GenericConst):
        return False
    return prod(int(extent) for extent in value.value.shape) > _MOST_INPUT


def _extents(values: Sequence[Any]) -> Array | None:
    if not all(isinstance(value, int | tvm.tirx.IntImm) for value in values):
        return None
    return np.array([int(value) for value in values], np.int64)


def _shape(node: Any, value: Any) -> list[Any] | None:
    """The shape, or the size, of a tensor of known extents."""
    shape = getattr(getattr(value, "ty", None), "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    extents = _extents(list(shape.values))
    if extents is None:
        return None
    return [relax.const(extents_of(node, extents.tolist()), "int64")]


def _constant(node: Any) -> list[Any] | None:
    """The values of a ``Constant``. None for sparse values and strings."""
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    kinds = {"value_float": "float32", "value_floats": "float32"}
    kinds |= {"value_int": "int64", "value_ints": "int64"}
    if attribute.name == "value":
        array = onnx.numpy_helper.to_array(value)
    elif attribute.name in kinds:
        array = np.array(value, kinds[attribute.name])
    else:
        return None
    return [relax.const(array, str(array.dtype))] if array.dtype.kind in "fiubV" else None


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
