# SPDX-License-Identifier: Apache-2.0
"""Class scores, computed from sums as in ONNX Runtime (``ml_common.h``), and class labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm import relax

from ...operands import StringValues, UnsupportedNode, text

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transform_of(attributes: dict[str, Any]) -> str:
    """The name of the transform that a node applies to its scores."""
    name = text(attributes, "post_transform", "NONE")
    if name not in _TRANSFORMS:
        raise UnsupportedNode(f"its post_transform is {name!r}: expected {', '.join(_TRANSFORMS)}")
    return name


def transformed(bb: Any, scores: Any, transform: str) -> Any:
    """Transform the scores of rows, (rows, classes), in float32."""
    scores = bb.emit(relax.op.astype(scores, "float32"))
    if transform == "SOFTMAX":
        return relax.op.nn.softmax(scores, axis=1)
    if transform == "LOGISTIC":
        return relax.op.sigmoid(scores)
    if transform == "SOFTMAX_ZERO":
        return _softmax_of_others(bb, scores)
    if transform == "PROBIT":
        return _probit(bb, scores)
    return scores


def _softmax_of_others(bb: Any, scores: Any) -> Any:
    """The softmax of the nonzero scores. Zero scores stay zero."""
    largest = bb.emit(relax.op.max(scores, axis=1, keepdims=True))
    is_other = bb.emit(relax.op.greater(relax.op.abs(scores), _number(1e-7)))
    powers = bb.emit(relax.op.exp(relax.op.subtract(scores, largest)))
    powers = bb.emit(relax.op.where(is_other, powers, _number(0.0)))
    total = bb.emit(relax.op.sum(powers, axis=1, keepdims=True))
    small = bb.emit(relax.op.multiply(scores, relax.op.exp(relax.op.negative(largest))))
    return relax.op.divide(bb.emit(relax.op.where(is_other, powers, small)), total)


def _probit(bb: Any, scores: Any) -> Any:
    """The quantile of the normal distribution, by Winitzki's inverse of the error function."""
    share = 0.147
    turned = bb.emit(relax.op.subtract(relax.op.multiply(scores, _number(2.0)), _number(1.0)))
    one = _number(1.0)
    left, right = relax.op.subtract(one, turned), relax.op.add(one, turned)
    log = bb.emit(relax.op.log(bb.emit(relax.op.multiply(left, right))))
    half = relax.op.multiply(log, _number(0.5))
    first = bb.emit(relax.op.add(half, _number(2 / (3.14159 * share))))
    second = relax.op.multiply(log, _number(1 / share))
    root = relax.op.sqrt(relax.op.subtract(relax.op.multiply(first, first), second))
    size = bb.emit(relax.op.sqrt(bb.emit(relax.op.subtract(root, first))))
    is_low = relax.op.less(turned, _number(0.0))
    size = relax.op.multiply(size, _number(float(np.sqrt(np.float32(2)))))
    return relax.op.where(is_low, relax.op.negative(size), size)


def _number(value: float) -> Any:
    return relax.const(value, "float32")


def pair(bb: Any, score: Any, other: str, transform: str) -> Any:
    """The scores of two classes from the score of the second, (rows, 1).

    ``other``: the first score, without a transform: "rest" (1 minus the second) or "negative".
    """
    if transform == "PROBIT":
        raise UnsupportedNode("ONNX Runtime leaves the score of its second class unwritten")
    score = bb.emit(relax.op.astype(score, "float32"))
    if other == "rest" and transform != "LOGISTIC":
        first = relax.op.subtract(_number(1.0), score)
    else:
        first = relax.op.negative(score)
    both = bb.emit(relax.op.concat([bb.emit(first), score], axis=1))
    return relax.op.sigmoid(both) if transform == "LOGISTIC" else both


class Labels:
    """The class labels of a node, and the name of the label output.

    Labels that are strings are refused if something reads that output.
    """

    def __init__(self, attributes: dict[str, Any], name: str) -> None:
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
        table = relax.const(np.array(self.values, np.int64), "int64")
        return bb.emit(relax.op.take(table, numbers, axis=0))

    def of_largest(self, bb: Any, scores: Any) -> Any:
        """The label of the largest score of each row, or of the first among equal scores."""
        return self.of_numbers(bb, bb.emit(relax.op.argmax(scores, axis=1)))

    def of_condition(self, bb: Any, condition: Any, no: int, yes: int) -> Any:
        """One of two labels for each row, by a condition of shape (rows, 1)."""
        flat = bb.emit(relax.op.reshape(condition, (-1,)))
        both = (relax.const(value, "int64") for value in (yes, no))
        return bb.emit(relax.op.where(flat, *both))
