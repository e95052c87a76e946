# SPDX-License-Identifier: Apache-2.0
"""Converters of features, labels, scores (``ml_common.h`` of ONNX Runtime) and linear models."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from tvm import relax
from tvm.relax import op

from ...operands import (
    Attributes,
    StringValues,
    UnsupportedNode,
    constant,
    dtype_of,
    float32,
    integers,
    number,
    part,
    shape_of,
    text,
)
from . import converts

Array = np.ndarray[Any, Any]


def as_rows(bb: Any, data: Any) -> Any:
    """Features as rows: one axis is one row."""
    shape = shape_of(data)
    return data if len(shape) > 1 else bb.emit(op.reshape(data, [1, *shape]))


def _as_floats(bb: Any, data: Any) -> Any:
    """Cast features to float32, as ONNX Runtime compares integers with floats. float64 stays."""
    is_float = dtype_of(data) in ("float32", "float64")
    return data if is_float else bb.emit(data.astype("float32"))


@converts("Scaler")
def scaler(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Subtract an offset and multiply by a scale."""
    data = _as_floats(bb, inputs[0])
    offset, scale = (_per_feature(data, attr.get(name, ()), name) for name in ("offset", "scale"))
    return ((data - offset) * scale).astype("float32")


@converts("Normalizer")
def normalizer(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Divide rows by their norms. Rows whose norm is 0 stay unchanged."""
    norm = text(attr, "norm", "MAX")
    data, axis = _as_floats(bb, inputs[0]), len(shape_of(inputs[0])) - 1
    if axis > 1:
        raise UnsupportedNode(f"its input has {axis + 1} axes: expected 2")
    whole = bb.emit(data.astype("float32"))
    if norm == "L2":
        squares = bb.emit((data * data).astype("float32"))
        total = bb.emit(op.sum(squares, axis=axis, keepdims=True))
        size = bb.emit(op.sqrt(squares / total))
        found = op.where(data < number(0.0, data), -size, size)
    elif norm == "MAX":
        total = bb.emit(op.max(whole, axis=axis, keepdims=True))
        found = whole / total
    elif norm == "L1":
        total = bb.emit(op.sum(op.abs(whole), axis=axis, keepdims=True))
        found = whole / total
    else:
        raise UnsupportedNode(f"its norm is {norm!r}: expected MAX, L1 or L2")
    return op.where(op.equal(total, float32(0.0)), whole, found)


@converts("Binarizer")
def binarizer(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Compare with a threshold."""
    data = _as_floats(bb, inputs[0])
    is_above = data > number(float(attr.get("threshold", 0.0)), data)
    return is_above.astype(dtype_of(inputs[0]))


@converts("Imputer")
def imputer(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Replace the value that marks missing features."""
    data, dtype = inputs[0], dtype_of(inputs[0])
    kinds = ("float", "floats") if dtype.startswith("float") else ("int64", "int64s")
    values = attr.get(f"imputed_value_{kinds[1]}", ())
    if not values:
        raise UnsupportedNode(f"it has no value to put into its input of {dtype}")
    if len(values) != shape_of(data)[-1]:
        values = values[:1]
    filled = _per_feature(data, values, "imputed value")
    replaced = attr.get(f"replaced_value_{kinds[0]}", 0)
    is_nan = np.isnan(replaced)
    is_missing = op.isnan(data) if is_nan else op.equal(data, number(replaced, data))
    return op.where(is_missing, filled, data)


@converts("ArrayFeatureExtractor")
def array_feature_extractor(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Select columns by index."""
    data = as_rows(bb, inputs[0])
    return op.take(data, op.reshape(inputs[1], (-1,)), axis=len(shape_of(data)) - 1)


@converts("FeatureVectorizer")
def feature_vectorizer(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """Join features, truncated or padded with zeros."""
    given = [each for each in inputs if each is not None]
    widths = tuple(attr.get("inputdimensions", ()))
    if len(widths) != len(given):
        raise UnsupportedNode(f"it has {len(widths)} inputdimensions for {len(given)} inputs")
    joined = []
    for value, width in zip(given, widths, strict=True):
        shape = shape_of(value)
        rows = 1 if len(shape) == 1 else shape[0]
        value = bb.emit(op.reshape(value, (rows, -1)).astype("float32"))
        extent = shape_of(value)[1]
        joined.append(bb.emit(part(value, 1, 0, width)) if extent > width else value)
        if extent < width:
            joined.append(float32(np.zeros((rows, width - extent))))
    return op.concat(joined, axis=1)


def _per_feature(data: Any, values: Sequence[float], name: str) -> Any:
    """A constant with one number for all features, or one for each."""
    shape = shape_of(data)
    if len(values) != 1 and (len(values) != shape[-1] or len(shape) > 2):
        raise UnsupportedNode(
            f"it has {len(values)} numbers as its {name}, and an input of the shape {tuple(shape)}"
        )
    return constant(values, dtype_of(data))


@converts("OneHotEncoder")
def one_hot_encoder(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A column for each category, of integers and of floats, which are truncated."""
    if attr.get("cats_strings"):
        raise StringValues("its categories are strings")
    categories = np.array(attr.get("cats_int64s", ()), np.int64)
    if len(np.unique(categories)) < len(categories) or not len(categories):
        raise UnsupportedNode("it has no categories, or one of them twice")
    column = op.expand_dims(inputs[0].astype("int64"), axis=len(shape_of(inputs[0])))
    return op.equal(column, integers(categories)).astype("float32")


@converts("LabelEncoder")
def label_encoder(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A table from numbers to numbers."""
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
    # The first of duplicate keys counts. ``np.unique`` treats NaNs as equal.
    keys, first = np.unique(keys, return_index=True)
    column = bb.emit(op.expand_dims(data, axis=len(shape_of(data))))
    is_key = op.equal(column, constant(keys))
    if np.isnan(keys[-1]):
        is_last = constant(np.arange(len(keys)) == len(keys) - 1)
        is_key = op.logical_or(is_key, op.logical_and(op.isnan(column), is_last))
    # At most one key matches, so the maximum of the places is the place of the key.
    met = op.where(is_key, integers(np.arange(1, len(keys) + 1)), integers(0))
    place = op.reshape(bb.emit(op.max(met, axis=-1)), (-1,))
    table = np.concatenate([[_default(attr, values.dtype)], values[first]])
    return op.reshape(op.take(constant(table, str(values.dtype)), place, axis=0), shape_of(data))


def _listed(attributes: Attributes, side: str) -> Array:
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


def _default(attributes: Attributes, kind: np.dtype[Any]) -> Any:
    """The result of a ``LabelEncoder`` for a number that is not a key."""
    if "default_tensor" in attributes:
        return onnx.numpy_helper.to_array(attributes["default_tensor"]).reshape(-1)[0]
    if kind.kind == "f":
        return attributes.get("default_float", -0.0)
    return attributes.get("default_int64", -1)


def _softmax_of_others(bb: Any, scores: Any) -> Any:
    """The softmax of the nonzero scores. Zero scores stay zero."""
    largest = bb.emit(op.max(scores, axis=1, keepdims=True))
    is_other = bb.emit(op.abs(scores) > float32(1e-7))
    powers = bb.emit(op.where(is_other, op.exp(scores - largest), float32(0.0)))
    total = bb.emit(op.sum(powers, axis=1, keepdims=True))
    return op.where(is_other, powers, scores * op.exp(-largest)) / total


def _probit(bb: Any, scores: Any) -> Any:
    """The quantile of the normal distribution, by Winitzki's inverse of the error function."""
    share, one = 0.147, float32(1.0)
    turned = bb.emit(scores * float32(2.0) - one)
    log = bb.emit(op.log((one - turned) * (one + turned)))
    first = bb.emit(log * float32(0.5) + float32(2 / (3.14159 * share)))
    root = op.sqrt(first * first - log * float32(1 / share))
    size = bb.emit(op.sqrt(root - first) * float32(np.sqrt(np.float32(2))))
    return op.where(turned < float32(0.0), -size, size)


_TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "NONE": lambda bb, scores: scores,
    "SOFTMAX": lambda bb, scores: op.nn.softmax(scores, axis=1),
    "LOGISTIC": lambda bb, scores: op.sigmoid(scores),
    "SOFTMAX_ZERO": _softmax_of_others,
    "PROBIT": _probit,
}


def transform_of(attributes: Attributes) -> str:
    """The name of the transform that a node applies to its scores."""
    name = text(attributes, "post_transform", "NONE")
    if name not in _TRANSFORMS:
        raise UnsupportedNode(f"its post_transform is {name!r}: expected {', '.join(_TRANSFORMS)}")
    return name


def transformed(bb: Any, scores: Any, transform: str) -> Any:
    """Transform the scores of rows, (rows, classes), in float32."""
    return _TRANSFORMS[transform](bb, bb.emit(scores.astype("float32")))


def pair(bb: Any, score: Any, other: str, transform: str) -> Any:
    """The scores of two classes from the score of the second, (rows, 1).

    ``other``: the first score, without a transform: "rest" (1 minus the second) or "negative".
    """
    if transform == "PROBIT":
        raise UnsupportedNode("ONNX Runtime leaves the score of its second class unwritten")
    score = bb.emit(score.astype("float32"))
    is_rest = other == "rest" and transform != "LOGISTIC"
    both = op.concat([float32(1.0) - score if is_rest else -score, score], axis=1)
    return op.sigmoid(both) if transform == "LOGISTIC" else bb.emit(both)


class Labels:
    """The class labels of a node, and the name of the label output.

    Labels that are strings are refused if something reads that output.
    """

    def __init__(self, attributes: Attributes, name: str) -> None:
        strings, numbers = attributes.get("classlabels_strings", ()), attributes.get(name, ())
        self.are_strings = bool(strings)
        self.output = attributes["tvm_custom"]["outputs"][0]
        if strings and self.output:
            raise StringValues(f"its labels ({self.output!r}) are strings")
        self.values: Sequence[int] = range(len(strings)) if strings else tuple(numbers)

    def __len__(self) -> int:
        return len(self.values)

    def of_numbers(self, bb: Any, numbers: Any) -> Any:
        """The labels of classes by index, (rows,)."""
        return bb.emit(op.take(integers(self.values), numbers, axis=0))

    def of_largest(self, bb: Any, scores: Any) -> Any:
        """The label of the largest score of each row, or of the first among equal scores."""
        return self.of_numbers(bb, op.argmax(scores, axis=1))

    def of_condition(self, bb: Any, condition: Any, no: int, yes: int) -> Any:
        """One of two labels for each row, by a condition of shape (rows, 1)."""
        is_met = op.reshape(bb.emit(condition), (-1,))
        return bb.emit(op.where(is_met, integers(yes), integers(no)))


@converts("LinearRegressor")
def linear_regressor(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The product with the coefficients of each target."""
    targets = int(attr.get("targets", 1))
    intercepts = attr.get("intercepts", ())
    kept = intercepts if len(intercepts) == targets else [0.0] * targets
    scores = _scores(bb, inputs[0], attr, kept)
    transform = transform_of(attr)
    if targets == 1 and transform != "PROBIT":
        return scores
    return transformed(bb, scores, transform)


@converts("LinearClassifier")
def linear_classifier(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """The label and the scores of linear models, by ONNX Runtime's rules."""
    labels = Labels(attr, "classlabels_ints")
    scores = _scores(bb, inputs[0], attr, attr.get("intercepts", ()))
    classes, transform = shape_of(scores)[1], transform_of(attr)
    if classes > 1:
        if len(labels) < classes:
            raise UnsupportedNode(f"it has {len(labels)} labels for {classes} classes")
        label = labels.of_largest(bb, scores)
        return relax.Tuple([label, transformed(bb, scores, transform)])
    if len(labels) != 2:
        raise UnsupportedNode(f"it has {len(labels)} labels for one score: expected 2")
    label = labels.of_condition(bb, scores > float32(0.0), *labels.values)
    return relax.Tuple([label, pair(bb, scores, "rest", transform)])


def _scores(bb: Any, data: Any, attributes: Attributes, intercepts: Sequence[float]) -> Any:
    """The product with the coefficients, (rows, classes), in float32."""
    shape, classes = shape_of(data), len(intercepts)
    coefficients = np.array(attributes.get("coefficients", ()), np.float32)
    used = classes * shape[-1] if shape else 0
    if not 1 <= len(shape) <= 2 or coefficients.size < used or not classes:
        raise UnsupportedNode(
            f"it has {coefficients.size} coefficients and {classes} intercepts for an input of the "
            f"shape {tuple(shape)}"
        )
    rows = as_rows(bb, bb.emit(data.astype("float32")))
    # ONNX Runtime ignores further coefficients, and its own example has twice as many.
    weight = np.ascontiguousarray(coefficients[:used].reshape(classes, -1).T)
    return bb.emit(op.matmul(rows, float32(weight)) + float32(intercepts))
