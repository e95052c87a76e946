# SPDX-License-Identifier: Apache-2.0
"""Vectorized reductions of tuples that TVM compiles to something else."""

import random

import numpy as np
import pytest

import tvm
from tvm import te, tirx, topi
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm_droplet_ms.design_space.screening.miscompiled import torn_tuple
from tvm_droplet_ms.search_strategy.candidates import TORN_TUPLE, ScreenedReplayer

DATA = np.random.default_rng(0).standard_normal((4, 64)).astype("float32")


def third_is_small(x, row, column):
    """A condition that differs within a vector."""
    return tirx.if_then_else(column % 3 == 0, tirx.const(-1, "float32"), x[row, column])


def odd_rows_are_small(x, row, column):
    """A condition that is the same for a vector."""
    return tirx.if_then_else(row % 2 == 1, tirx.const(-1, "float32"), x[row, column])


def rounded(x, row, column):
    """A call that TVM vectorizes for no CPU."""
    return tirx.nearbyint(x[row, column] * tirx.const(9, "float32"))


def plain(x, row, column):
    return x[row, column]


EXPECTED = {
    third_is_small: np.where(np.arange(64) % 3 == 0, np.float32(-1), DATA),
    odd_rows_are_small: np.where(np.arange(4)[:, None] % 2 == 1, np.float32(-1), DATA),
    rounded: np.rint(DATA * np.float32(9)),
    plain: DATA,
}


def workload(element):
    """The largest element of each row and its column."""

    def larger(left, right):
        is_left = left[1] >= right[1]
        return tuple(tirx.Select(is_left, *pair) for pair in zip(left, right))

    def start(index, number):
        return tirx.const(-1, index), te.min_value(number)

    x = te.placeholder((4, 64), name="x")
    k = te.reduce_axis((0, 64), "k")
    largest = te.comm_reducer(larger, start, name="largest")
    place, best = te.compute((4,), lambda i: largest((k, element(x, i, k)), axis=k), name="m")
    return IRModule({"main": te.create_prim_func([x, place, best])})


def scheduled(element):
    """Four columns at a time, in a vector."""
    schedule = Schedule(workload(element), debug_mask="none")
    _, column = schedule.get_loops(schedule.get_sblock("m"))
    _, lane = schedule.split(column, [None, 4])
    factor = schedule.rfactor(lane, 1)
    schedule.vectorize(schedule.get_loops(factor)[-1])
    return schedule


def is_right(mod, element):
    place, best = tvm.runtime.empty((4,), "int32"), tvm.runtime.empty((4,), "float32")
    tvm.compile(mod, target="llvm")["main"](tvm.runtime.tensor(DATA), place, best)
    values = EXPECTED[element]
    chosen = values[np.arange(4), np.clip(place.numpy(), 0, 63)]
    return np.array_equal(best.numpy(), values.max(1)) and np.array_equal(chosen, values.max(1))


@pytest.mark.parametrize("element", EXPECTED)
def test_what_is_found_is_wrong_and_the_rest_is_right(element):
    mod = scheduled(element).mod
    assert (torn_tuple(mod) is None) is is_right(mod, element)


def test_such_schedules_are_dropped_and_counted():
    replayer = ScreenedReplayer(workload(third_is_small), [], random.Random(0))
    assert replayer.replay(scheduled(third_is_small).trace) is None
    assert replayer.dropped[TORN_TUPLE] == 1


def test_all_schedules_that_are_left_are_right():
    """Of TVM's design spaces, drawn at random."""
    data = np.random.default_rng(1).standard_normal((1, 4096)).astype("float32")
    x = te.placeholder(data.shape, name="x")
    chosen = te.compute(data.shape, lambda i, j: third_is_small(x, i, j), name="chosen")
    mod = IRModule({"main": te.create_prim_func([x, topi.argmax(chosen, axis=1)])})
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 4})
    context = TuneContext(mod, target=target, space_generator="post-order-apply", rand_state=1)
    spaces = context.generate_design_space()
    replayer = ScreenedReplayer(mod, list(context.space_generator.postprocs), random.Random(0))
    right = 0
    for _ in range(12):
        for space in spaces:
            trace = tvm.s_tir.Trace(space.trace.insts, {})
            candidate = replayer.replay(trace)
            if candidate is not None:
                found = tvm.runtime.empty((1,), "int32")
                run = tvm.compile(candidate.schedule.mod, target)["main"]
                run(tvm.runtime.tensor(data), found)
                expected = np.where(np.arange(4096) % 3 == 0, np.float32(-1), data).argmax(1)
                np.testing.assert_array_equal(found.numpy(), expected)
                right += 1
    assert right and replayer.dropped[TORN_TUPLE]
