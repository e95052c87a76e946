# SPDX-License-Identifier: Apache-2.0
"""Indices outside of a tensor read and write nothing outside of it."""

import numpy as np
import pytest
from graphs import build

import tvm
from tvm import relax
from tvm_droplet_ms.model.bindings import operator_name, values_of
from tvm_droplet_ms.model.indices import bound_indices
from tvm_droplet_ms.model.prepare import prepare_graph

DATA = np.arange(12, dtype="float32").reshape(4, 3)


def indices(emit, x):
    return emit(relax.op.astype(x, "int64"))


def take(emit, x):
    return emit(relax.op.take(relax.const(DATA), indices(emit, x), axis=0))


def gather(emit, x):
    return emit(relax.op.gather_elements(relax.const(DATA), indices(emit, x), axis=0))


def gather_places(emit, x):
    return emit(relax.op.gather_nd(relax.const(DATA), indices(emit, x)))


def scatter(emit, x):
    ones = relax.const(np.full((2, 3), 100, "float32"))
    return emit(relax.op.scatter_elements(relax.const(DATA), indices(emit, x), ones, 0, "update"))


def scatter_places(emit, x):
    hundred = relax.const(np.full(2, 100, "float32"))
    return emit(relax.op.scatter_nd(relax.const(DATA), indices(emit, x), hundred, "update"))


def with_hundreds(*places):
    changed = DATA.copy()
    for place in places:
        changed[place] = 100
    return changed


FAR = 1 << 40


@pytest.mark.parametrize(
    ("body", "given", "expected"),
    [
        (take, [1, 3], DATA[[1, 3]]),
        (take, [-FAR, FAR], DATA[[0, 3]]),
        (gather, [[2, 0, 1]], DATA[[2, 0, 1], [0, 1, 2]][None]),
        (gather, [[FAR, -FAR, 4]], DATA[[3, 0, 3], [0, 1, 2]][None]),
        (gather_places, [[1, 2], [3, 0]], DATA[[1, 3], [2, 0]]),
        (gather_places, [[FAR, -1], [0, FAR]], DATA[[3, 0], [0, 2]]),
        (scatter, [[0, -1, 1], [1, 2, 2]], with_hundreds(*zip([0, 3, 1, 1, 2, 2], [0, 1, 2] * 2))),
        (scatter, [[FAR] * 3, [-FAR] * 3], with_hundreds(3, 0)),
        (scatter_places, [[1, 2], [3, 0]], with_hundreds((1, 2), (3, 0))),
        (scatter_places, [[FAR, 1], [-FAR, FAR]], with_hundreds((3, 1), (0, 2))),
    ],
)
@pytest.mark.parametrize("make_pass", [bound_indices, prepare_graph])
def test_the_nearest_element_is_taken(body, given, expected, make_pass):
    given = np.array(given, "float64")
    mod = make_pass()(build(given.shape, body, dtype="float64"))
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(given)).numpy(), expected)


def test_constant_indices_stay():
    def body(emit, x):
        return emit(relax.op.take(x, relax.const(np.array([2, 0])), axis=0))

    after = bound_indices()(build(DATA.shape, body))
    (value,) = (each for each in values_of(after["main"]) if operator_name(each))
    assert operator_name(value) == "relax.take" and value.attrs.mode == "fast"
