# SPDX-License-Identifier: Apache-2.0
"""Couple the probabilities of pairs of classes to probabilities of classes, as in LIBSVM.

The method is the second one of Wu, Lin and Weng, "Probability estimates for multi-class
classification by pairwise coupling" (2004). The iteration stops early, so that only ONNX Runtime's
steps give its result (``ml_common.h``, ``multiclass_probability``).
"""

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

STEPS = 100
"""Maximum number of steps for a row."""


MOST_ON_STACK = 32
"""Maximum number of classes whose pairs are kept on the stack."""


def couple(shares: te.Tensor) -> list[te.Tensor]:
    """Compute the probabilities of classes, (rows, classes).

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
            with T.While(left[0] > 0):
                _fill_sums(classes, out, row, products, sums, total)
                T.buffer_store(error, _number(0), [0])
                with T.serial(0, classes) as one:
                    T.buffer_store(error, tirx.max(error[0], tirx.abs(sums[one] - total[0])), [0])
                T.buffer_store(left, left[0] - 1, [0])
                with T.If(error[0] < _number(0.005 / classes)):
                    with T.Then():
                        T.buffer_store(left, tirx.const(0), [0])
                    with T.Else():
                        _move(classes, out, row, products, sums, total)
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
