# SPDX-License-Identifier: Apache-2.0
"""Weights of integers, of unusual ranks, and of operators that NumPy lacks: equal, or untouched."""

import numpy as np
import pytest
from small_models import Weights, check_outputs, module
from stub_bench import PRICE

from tvm import relax
from tvm_droplet_papers.graph import optimize


def integers(*values, dtype="int32"):
    return relax.const(np.array(values, dtype))


def check(mod, rtol):
    """The module that `optimize` makes has the outputs of the one that it gets, on the VM."""
    after = optimize(mod, "llvm", price=PRICE, max_nodes=400, time_budget_s=5).mod
    check_outputs(mod, after, rtol)
    return after


LARGE = 2**31 - 1
OF_INTEGERS = {
    "quotient": lambda op: op.divide(integers(7, -8, 9), integers(2, 3, 2)),
    "remaining sum": lambda op: op.sum(integers([7, 8, 9], [LARGE, LARGE, 1]), axis=0),
    "sum of bytes": lambda op: op.sum(integers([200, 1, 0], [100, 1, 0], dtype="uint8"), axis=0),
    "clip": lambda op: op.clip(integers(-3, 4, 12), 0, 8),
    "mean": lambda op: op.mean(integers([7, 8, 9], [2, 3, 4]), axis=0),
    "sum that wraps": lambda op: op.add(integers(LARGE, 1, 2), integers(1, 1, 1)),
    "maximum": lambda op: op.maximum(integers(1, -1, 5), integers(0, 2, 5)),
}


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers_are_folded_as_tvm_computes_them(name):
    """Once as a part of arithmetic on floats, once as a result."""

    def body(emit, x):
        value = emit(OF_INTEGERS[name](relax.op))
        return emit(relax.op.add(x, emit(relax.op.astype(value, "float32")))), value

    check(module([(3,)], body), 1e-6)


# TVM itself does not compile what uses a mean of integers: it is of int64 after LegalizeOps.
@pytest.mark.parametrize("name", sorted(OF_INTEGERS.keys() - {"mean"}))
def test_folded_integers_meet_other_integers(name):
    def body(emit, x):
        value = emit(OF_INTEGERS[name](relax.op))
        if str(value.ty.dtype) != "int32":
            value = emit(relax.op.astype(value, "int32"))
        return emit(relax.op.add(x, value))

    check(module([(3,)], body, "int32"), 0)


def test_sums_of_integers_are_still_folded():
    """A value that NumPy computes as TVM does leaves no call."""

    def body(emit, x):
        value = emit(relax.op.add(integers(1, 2, 3), integers(4, 5, 6)))
        return emit(relax.op.add(x, value))

    after = check(module([(3,)], body, "int32"), 0)
    assert len(after["main"].body.blocks[0].bindings) == 1


def test_a_pool_that_numpy_lacks_stays_a_call():
    w = Weights()
    options = {"pool_size": 3, "strides": 2, "padding": 1, "ceil_mode": True}

    def body(emit, x):
        pooled = relax.op.nn.avg_pool2d(w(1, 2, 6, 6), **options, count_include_pad=True)
        return emit(relax.op.add(x, emit(pooled)))

    check(module([(1, 2, 4, 4)], body), 1e-6)


def matmul_scale(emit, w, x):
    return emit(relax.op.multiply(emit(relax.op.matmul(x, w(16, 16))), w(1, 1, 16)))


def convolution_scale(emit, w, x):
    y = emit(relax.op.nn.conv2d(x, w(4, 3, 1, 1)))
    return emit(relax.op.multiply(y, w(1, 1, 4, 1, 1)))


def scalar_of_matrix_times_vector(emit, w, x, y):
    return emit(relax.op.multiply(emit(relax.op.matmul(x, y)), w(1, 1, 1)))


def one_stacked_weight(emit, w, x, y):
    weight = w(5, 3, 4)
    return tuple(emit(relax.op.matmul(each, weight)) for each in (x, y))


def shift_before_stack(emit, w, x):
    return emit(relax.op.matmul(emit(relax.op.add(x, w(3))), w(5, 3, 4)))


def sum_before_stack(emit, w, x, y):
    weight = w(5, 3, 4)
    products = [emit(relax.op.matmul(each, weight)) for each in (x, y)]
    return emit(relax.op.add(*products))


def scaled_identity(emit, w, x):
    conv = emit(relax.op.nn.conv2d(x, w(4, 4, 3, 3), padding=1))
    return emit(relax.op.add(conv, emit(relax.op.multiply(x, w(1, 1, 1, 1, 1)))))


ODD = {
    "scale of a product, rank 3": (matmul_scale, (16, 16)),
    "scale of a convolution, rank 5": (convolution_scale, (1, 3, 4, 4)),
    "scalar of rank 3": (scalar_of_matrix_times_vector, (4, 8, 16), (16,)),
    "one stack of weights": (one_stacked_weight, (6, 3), (7, 3)),
    "shift before a stack": (shift_before_stack, (5, 3)),
    "sum before a stack": (sum_before_stack, (3,), (5, 3)),
    "identity scaled, rank 5": (scaled_identity, (1, 4, 6, 6)),
}


@pytest.mark.parametrize("name", ODD)
def test_weights_of_unusual_ranks(name):
    w = Weights()
    build, *shapes = ODD[name]
    check(module(shapes, lambda emit, *inputs: build(emit, w, *inputs)), 2e-6)
