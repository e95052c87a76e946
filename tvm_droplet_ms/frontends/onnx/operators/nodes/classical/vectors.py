# SPDX-License-Identifier: Apache-2.0
"""Converters for support vector machines, by ONNX Runtime's rules (``svmclassifier.cc``)."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ......model.scheduled import emit_scheduled
from ...operands import UnsupportedNode, shape_of, text
from .coupling import couple
from .scores import Labels, pair, transform_of, transformed

Array = np.ndarray[Any, Any]


class SVMRegressor(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``SVMRegressor``."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        rho = float(attr["rho"][0])
        coefficients = np.array(attr["coefficients"], np.float32).reshape(-1, 1)
        count = int(attr.get("n_supports", 0))
        data = _rows(bb, inputs[0])
        if count:
            data = _kernel(bb, data, _vectors(attr, count), attr)
        product = bb.emit(relax.op.matmul(data, relax.const(coefficients, "float32")))
        found = bb.emit(relax.op.add(product, relax.const(rho, "float32")))
        if not attr.get("one_class", 0):
            return found
        is_inside = bb.emit(relax.op.greater(found, relax.const(0.0, "float32")))
        return relax.op.where(is_inside, *(relax.const(each, "float32") for each in (1.0, -1.0)))


class SVMClassifier(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Converts ``SVMClassifier``: a vote over all pairs of classes."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        labels = Labels(attr, "classlabels_ints")
        counts = np.array(attr.get("vectors_per_class", ()), np.int64)
        if not counts.sum() or len(counts) != len(labels):
            raise UnsupportedNode(
                f"it has {counts.sum()} support vectors of {len(counts)} classes for {len(labels)} "
                "labels: expected some of each"
            )
        classes, transform = len(labels), transform_of(attr)
        kernels = _kernel(bb, _rows(bb, inputs[0]), _vectors(attr, int(counts.sum())), attr)
        by_pair, votes = _pairs(np.array(attr["coefficients"], np.float32), counts)
        # ONNX Runtime also sums in float64, because many vectors cancel each other.
        wide = bb.emit(relax.op.astype(kernels, "float64"))
        weights = relax.const(by_pair.astype("float64"), "float64")
        product = bb.emit(relax.op.matmul(wide, weights))
        rho = relax.const(np.array(attr["rho"][: by_pair.shape[1]], np.float64), "float64")
        scores = bb.emit(relax.op.astype(bb.emit(relax.op.add(product, rho)), "float32"))
        is_first = relax.op.greater(scores, relax.const(0.0, "float32"))
        ones = bb.emit(relax.op.astype(is_first, "float32"))
        both = bb.emit(relax.op.concat([ones, relax.op.subtract(relax.const(1.0), ones)], axis=1))
        ballots = bb.emit(relax.op.matmul(both, relax.const(votes, "float32")))
        label = labels.of_largest(bb, ballots)
        if attr.get("prob_a"):
            scores = _probabilities(bb, scores, attr, classes)
        if classes > 2 or attr.get("prob_a"):
            return relax.Tuple([label, transformed(bb, scores, transform)])
        other = "negative" if transform == "NONE" else "rest"
        return relax.Tuple([label, pair(bb, scores, other, transform)])


def _rows(bb: Any, data: Any) -> Any:
    data = bb.emit(relax.op.astype(data, "float32"))
    return bb.emit(relax.op.reshape(data, [1, -1])) if len(shape_of(data)) == 1 else data


def _vectors(attributes: dict[str, Any], count: int) -> Array:
    return np.array(attributes["support_vectors"], np.float32).reshape(count, -1)


def _kernel(bb: Any, rows: Any, vectors: Array, attributes: dict[str, Any]) -> Any:
    """The kernel of each row with each support vector, (rows, vectors)."""
    kind = text(attributes, "kernel_type", "LINEAR")
    gamma, shift, degree = attributes.get("kernel_params", ()) or (0.0, 0.0, 0.0)
    if kind == "RBF":
        apart = relax.op.subtract(bb.emit(relax.op.expand_dims(rows, 1)), _constant(vectors))
        squares = bb.emit(relax.op.multiply(bb.emit(apart), apart))
        total = bb.emit(relax.op.sum(squares, axis=2))
        return bb.emit(relax.op.exp(relax.op.multiply(total, _constant(-gamma))))
    product = bb.emit(relax.op.matmul(rows, _constant(np.ascontiguousarray(vectors.T))))
    if kind == "LINEAR":
        return product
    product = relax.op.multiply(product, _constant(gamma))
    product = bb.emit(relax.op.add(product, _constant(shift)))
    if kind == "SIGMOID":
        return bb.emit(relax.op.tanh(product))
    if kind != "POLY" or degree != int(degree) or not 1 <= degree <= 8:
        raise UnsupportedNode(
            f"its kernel is {kind} of the degree {degree}, which is not supported"
        )
    power = product
    for _ in range(int(degree) - 1):
        power = bb.emit(relax.op.multiply(power, product))
    return power


def _probabilities(bb: Any, scores: Any, attributes: dict[str, Any], classes: int) -> Any:
    """The probabilities of classes, (rows, classes), from the scores of their pairs."""
    pairs = list(combinations(range(classes), 2))
    slope, shift = (_constant(attributes[f"prob_{name}"][: len(pairs)]) for name in "ab")
    moved = bb.emit(relax.op.add(relax.op.multiply(scores, slope), shift))
    one = _constant(1.0)
    share = relax.op.subtract(one, bb.emit(relax.op.sigmoid(moved)))
    share = bb.emit(relax.op.clip(bb.emit(share), 1e-7, float(np.float32(1) - np.float32(1e-7))))
    both = bb.emit(relax.op.concat([share, relax.op.subtract(one, share)], axis=1))
    places = np.zeros((classes, classes), np.int64)
    for number, (first, second) in enumerate(pairs):
        places[first, second], places[second, first] = number, len(pairs) + number
    spread = bb.emit(relax.op.take(both, relax.const(places.reshape(-1), "int64"), axis=1))
    shares = bb.emit(relax.op.reshape(spread, (-1, classes, classes)))
    return emit_scheduled(bb, couple, [shares], "couple")


def _pairs(coefficients: Array, counts: Array) -> tuple[Array, Array]:
    """The weight of each vector for each pair of classes, and the votes of each pair.

    A positive score of a pair is a vote for its first class. The second half of the rows of the
    votes is for scores that are not positive.
    """
    classes = len(counts)
    table = coefficients[: (classes - 1) * counts.sum()].reshape(classes - 1, -1)
    starts = np.cumsum(counts) - counts
    pairs = list(combinations(range(classes), 2))
    weights = np.zeros((int(counts.sum()), len(pairs)), np.float32)
    votes = np.zeros((2 * len(pairs), classes), np.float32)
    for number, (one, other) in enumerate(pairs):
        for own, row in ((one, other - 1), (other, one)):
            vectors = slice(starts[own], starts[own] + counts[own])
            weights[vectors, number] = table[row, vectors]
        votes[number, one] = votes[len(pairs) + number, other] = 1
    return weights, votes


def _constant(value: Any) -> Any:
    return relax.const(np.asarray(value, np.float32), "float32")
