# SPDX-License-Identifier: Apache-2.0
"""Converters for support vector machines, by ONNX Runtime's rules (``svmclassifier.cc``)."""

from itertools import combinations
from typing import Any

import numpy as np

from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ......model.scheduled import emit_scheduled
from ...operands import Attributes, UnsupportedNode, constant, float32, integers, text
from . import converts
from .scores import Labels, as_rows, pair, transform_of, transformed

Array = np.ndarray[Any, Any]


@converts("SVMRegressor")
def svm_regressor(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A regression, or whether rows are inside of one class."""
    rho = float(attr["rho"][0])
    coefficients = np.array(attr["coefficients"], np.float32).reshape(-1, 1)
    count = int(attr.get("n_supports", 0))
    data = as_rows(bb, bb.emit(inputs[0].astype("float32")))
    if count:
        data = _kernel(bb, data, _vectors(attr, count), attr)
    found = bb.emit(op.matmul(data, float32(coefficients)) + float32(rho))
    if not attr.get("one_class", 0):
        return found
    return op.where(found > float32(0.0), float32(1.0), float32(-1.0))


@converts("SVMClassifier")
def svm_classifier(bb: Any, inputs: Any, attr: Attributes) -> Any:
    """A vote over all pairs of classes."""
    labels = Labels(attr, "classlabels_ints")
    counts = np.array(attr.get("vectors_per_class", ()), np.int64)
    if not counts.sum() or len(counts) != len(labels):
        raise UnsupportedNode(
            f"it has {counts.sum()} support vectors of {len(counts)} classes for {len(labels)} "
            "labels: expected some of each"
        )
    classes, transform = len(labels), transform_of(attr)
    rows = as_rows(bb, bb.emit(inputs[0].astype("float32")))
    kernels = _kernel(bb, rows, _vectors(attr, int(counts.sum())), attr)
    by_pair, votes = _pairs(np.array(attr["coefficients"], np.float32), counts)
    # ONNX Runtime also sums in float64, because many vectors cancel each other.
    product = op.matmul(kernels.astype("float64"), constant(by_pair, "float64"))
    rho = constant(attr["rho"][: by_pair.shape[1]], "float64")
    scores = bb.emit((product + rho).astype("float32"))
    ones = bb.emit((scores > float32(0.0)).astype("float32"))
    both = op.concat([ones, float32(1.0) - ones], axis=1)
    label = labels.of_largest(bb, op.matmul(both, float32(votes)))
    if attr.get("prob_a"):
        scores = _probabilities(bb, scores, attr, classes)
    if classes > 2 or attr.get("prob_a"):
        return relax.Tuple([label, transformed(bb, scores, transform)])
    other = "negative" if transform == "NONE" else "rest"
    return relax.Tuple([label, pair(bb, scores, other, transform)])


def _vectors(attributes: Attributes, count: int) -> Array:
    return np.array(attributes["support_vectors"], np.float32).reshape(count, -1)


def _kernel(bb: Any, rows: Any, vectors: Array, attributes: Attributes) -> Any:
    """The kernel of each row with each support vector, (rows, vectors)."""
    kind = text(attributes, "kernel_type", "LINEAR")
    gamma, shift, degree = attributes.get("kernel_params", ()) or (0.0, 0.0, 0.0)
    if kind == "RBF":
        apart = bb.emit(op.expand_dims(rows, 1) - float32(vectors))
        return bb.emit(op.exp(op.sum(apart * apart, axis=2) * float32(-gamma)))
    product = bb.emit(op.matmul(rows, float32(np.ascontiguousarray(vectors.T))))
    if kind == "LINEAR":
        return product
    product = bb.emit(product * float32(gamma) + float32(shift))
    if kind == "SIGMOID":
        return bb.emit(op.tanh(product))
    if kind != "POLY" or degree != int(degree) or not 1 <= degree <= 8:
        raise UnsupportedNode(
            f"its kernel is {kind} of the degree {degree}, which is not supported"
        )
    power = product
    for _ in range(int(degree) - 1):
        power = bb.emit(power * product)
    return power


def _probabilities(bb: Any, scores: Any, attributes: Attributes, classes: int) -> Any:
    """The probabilities of classes, (rows, classes), from the scores of their pairs."""
    pairs = list(combinations(range(classes), 2))
    slope, shift = (float32(attributes[f"prob_{name}"][: len(pairs)]) for name in "ab")
    one = float32(1.0)
    share = one - op.sigmoid(scores * slope + shift)
    share = bb.emit(op.clip(share, 1e-7, float(np.float32(1) - np.float32(1e-7))))
    both = op.concat([share, one - share], axis=1)
    places = np.zeros((classes, classes), np.int64)
    for number, (first, second) in enumerate(pairs):
        places[first, second], places[second, first] = number, len(pairs) + number
    spread = bb.emit(op.take(both, integers(places.reshape(-1)), axis=1))
    shares = bb.emit(op.reshape(spread, (-1, classes, classes)))
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


STEPS = 100
"""Maximum number of steps for a row."""


MOST_ON_STACK = 32
"""Maximum number of classes whose pairs are kept on the stack."""


def couple(shares: te.Tensor) -> list[te.Tensor]:
    """Turn pairwise probabilities into class probabilities, (rows, classes), as LIBSVM does.

    The method is the second one of Wu, Lin and Weng, "Probability estimates for multi-class
    classification by pairwise coupling" (2004). The iteration stops early, so that only ONNX
    Runtime's steps give its result (``ml_common.h``, ``multiclass_probability``).

    ``shares``: the probability of each class, given that the class is this one or another one,
    (rows, classes, classes).
    """
    rows, classes = (int(extent) for extent in shares.shape[:2])
    found = te.extern(
        [(rows, classes)],
        [shares],
        lambda inputs, outputs: _statements(rows, classes, inputs[0], outputs[0]),
        dtype=[shares.dtype],
        name="couple",
    )
    return [found]


def _statements(rows: int, classes: int, shares: Any, out: Any) -> Any:
    with IRBuilder() as builder:
        with T.parallel(0, rows) as row:
            scope = "local" if classes <= MOST_ON_STACK else "global"
            products = T.alloc_buffer((classes, classes), "float32", scope=scope)
            sums = T.alloc_buffer((classes,), "float32", scope="local")
            total, error = (T.alloc_buffer((1,), "float32", scope="local") for _ in range(2))
            left = T.alloc_buffer((1,), "int32", scope="local")
            _fill_products(classes, shares, row, products)
            with T.serial(0, classes) as one:
                T.buffer_store(out, _number(1 / classes), [row, one])
            T.buffer_store(left, tirx.const(STEPS), [0])
            state = (classes, out, row, products, sums, total)
            with T.While(left[0] > 0):
                _fill_sums(*state)
                T.buffer_store(error, _number(0), [0])
                with T.serial(0, classes) as one:
                    T.buffer_store(error, tirx.max(error[0], tirx.abs(sums[one] - total[0])), [0])
                T.buffer_store(left, left[0] - 1, [0])
                with T.If(error[0] < _number(0.005 / classes)):
                    with T.Then():
                        T.buffer_store(left, tirx.const(0), [0])
                    with T.Else():
                        _move(*state)
        return builder.get()


def _fill_products(classes: int, shares: Any, row: Any, products: Any) -> None:
    """Compute the quadratic form that the probabilities minimize."""
    with T.serial(0, classes) as one:
        T.buffer_store(products, _number(0), [one, one])
        with T.serial(0, classes) as other:
            with T.If(one != other), T.Then():
                share, rest = shares[row, other, one], shares[row, one, other]
                T.buffer_store(products, products[one, one] + share * share, [one, one])
                T.buffer_store(products, _number(0) - share * rest, [one, other])


def _fill_sums(classes: int, out: Any, row: Any, products: Any, sums: Any, total: Any) -> None:
    """Compute the products of the quadratic form with the probabilities."""
    T.buffer_store(total, _number(0), [0])
    with T.serial(0, classes) as one:
        T.buffer_store(sums, _number(0), [one])
        with T.serial(0, classes) as other:
            added = products[one, other] * out[row, other]
            T.buffer_store(sums, sums[one] + added, [one])
        T.buffer_store(total, total[0] + out[row, one] * sums[one], [0])


def _move(classes: int, out: Any, row: Any, products: Any, sums: Any, total: Any) -> None:
    """Update the probabilities one after the other."""
    with T.serial(0, classes) as one:
        diagonal = products[one, one]
        move = T.bind((total[0] - sums[one]) / diagonal)
        scale = T.bind(move + _number(1))
        T.buffer_store(out, out[row, one] + move, [row, one])
        grown = total[0] + move * (move * diagonal + _number(2) * sums[one])
        T.buffer_store(total, grown / scale / scale, [0])
        with T.serial(0, classes) as other:
            moved = (sums[other] + move * products[one, other]) / scale
            T.buffer_store(sums, moved, [other])
            T.buffer_store(out, out[row, other] / scale, [row, other])


def _number(value: float) -> Any:
    return tirx.const(float(value), "float32")
