# SPDX-License-Identifier: Apache-2.0
"""Converters for numeric categories."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ...operands import StringValues, UnsupportedNode, dtype_of, shape_of

Array = np.ndarray[Any, Any]


class OneHotEncoder(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``OneHotEncoder`` of integers, and of floats, which are truncated."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        if attr.get("cats_strings"):
            raise StringValues("its categories are strings")
        categories = np.array(attr.get("cats_int64s", ()), np.int64)
        if len(np.unique(categories)) < len(categories) or not len(categories):
            raise UnsupportedNode("it has no categories, or one of them twice")
        whole = bb.emit(relax.op.astype(inputs[0], "int64"))
        column = bb.emit(relax.op.expand_dims(whole, axis=len(shape_of(whole))))
        found = bb.emit(relax.op.equal(column, relax.const(categories, "int64")))
        return relax.op.astype(found, "float32")


class LabelEncoder(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``LabelEncoder`` from numbers to numbers."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        data, dtype = inputs[0], dtype_of(inputs[0])
        keys, values = _listed(attr, "keys"), _listed(attr, "values")
        if len(keys) != len(values) or not len(keys) or keys.dtype != dtype:
            raise UnsupportedNode(
                f"it has {len(keys)} keys of {keys.dtype} for {len(values)} values, and an input "
                f"of {dtype}"
            )
        if "keys_floats" in attr and np.isnan(keys).any():
            raise UnsupportedNode(
                "one of its keys is NaN, which it finds from version 4 on only: expected such keys "
                "as keys_tensor"
            )
        otherwise = _default(attr, values.dtype)
        # The first of duplicate keys counts. ``np.unique`` treats NaNs as equal.
        keys, first = np.unique(keys, return_index=True)
        values = values[first]
        kind = str(values.dtype)
        column = bb.emit(relax.op.expand_dims(data, axis=len(shape_of(data))))
        is_key = bb.emit(relax.op.equal(column, relax.const(keys, dtype)))
        if np.isnan(keys[-1]):
            is_last = relax.const(np.arange(len(keys)) == len(keys) - 1, "bool")
            is_nan = bb.emit(relax.op.logical_and(relax.op.isnan(column), is_last))
            is_key = bb.emit(relax.op.logical_or(is_key, is_nan))
        # At most one key matches, so the maximum of the places is the place of the key.
        places = relax.const(np.arange(1, len(keys) + 1), "int64")
        met = bb.emit(relax.op.where(is_key, places, relax.const(0, "int64")))
        place = bb.emit(relax.op.max(met, axis=-1))
        table = np.concatenate([[otherwise], values]).astype(values.dtype)
        flat = bb.emit(relax.op.reshape(place, (-1,)))
        taken = bb.emit(relax.op.take(relax.const(table, kind), flat, axis=0))
        return relax.op.reshape(taken, shape_of(data))


def _listed(attributes: dict[str, Any], side: str) -> Array:
    """The keys or the values of a ``LabelEncoder``."""
    if f"{side}_strings" in attributes or "classes_strings" in attributes:
        raise StringValues(f"its {side} are strings")
    if f"{side}_tensor" in attributes:
        array: Array = onnx.numpy_helper.to_array(attributes[f"{side}_tensor"]).reshape(-1)
        if array.dtype.kind not in "fi":
            raise StringValues(f"its {side} are strings")
        return array
    if f"{side}_floats" in attributes:
        return np.array(attributes[f"{side}_floats"], np.float32)
    return np.array(attributes.get(f"{side}_int64s", ()), np.int64)


def _default(attributes: dict[str, Any], kind: np.dtype[Any]) -> Any:
    """The result of a ``LabelEncoder`` for a number that is not a key."""
    if "default_tensor" in attributes:
        return onnx.numpy_helper.to_array(attributes["default_tensor"]).reshape(-1)[0]
    if kind.kind == "f":
        return attributes.get("default_float", -0.0)
    return attributes.get("default_int64", -1)
