# SPDX-License-Identifier: Apache-2.0
"""Compute nodes of constant inputs while a model is imported.

TVM folds few of them, and then cannot import operators that depend on a computed shape. The bodies
of functions and the branches of an ``If`` become known only during the import.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import onnx

import tvm
from tvm import relax
from tvm.ir import GenericConst

from ..evaluation import evaluate_node, is_quantized_weight
from ..folding import RANDOM
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
    if node.op_type == "Size":
        return [relax.const(np.array(extents.prod(), np.int64), "int64")]
    bounds = {each.name: each.i for each in node.attribute}
    start, end = bounds.get("start", 0), bounds.get("end", len(extents))
    return [relax.const(extents[start:end], "int64")]


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
