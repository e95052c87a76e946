# SPDX-License-Identifier: Apache-2.0
"""Operations that a kernel executes, against counts by hand."""

import pytest

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm_droplet_ms.design_space.screening.executed_work import WorkLimit, executed_operations

ROWS, COLUMNS = 6, 40


def spread_mean():
    """Each element less the sum of its row: a reduction, then what reads it once an element."""
    data = te.placeholder((ROWS, COLUMNS), name="data")
    k = te.reduce_axis((0, COLUMNS), name="k")
    total = te.compute((ROWS,), lambda i: te.sum(data[i, k], axis=k), name="total")
    out = te.compute((ROWS, COLUMNS), lambda i, j: data[i, j] - total[i], name="out")
    return tvm.IRModule({"main": te.create_prim_func([data, out])})


BOTH = 2 * 2 * ROWS * COLUMNS
"""An addition or a subtraction, and a store, for each element and stage."""


def moved(axis: int):
    """The same with the sum computed inside a loop of the output."""
    schedule = Schedule(spread_mean())
    loop = schedule.get_loops(schedule.get_sblock("out"))[axis]
    schedule.compute_at(schedule.get_sblock("total"), loop)
    return schedule


def test_each_store_counts_with_its_operations():
    assert executed_operations(spread_mean()) == BOTH


def test_what_is_computed_again_counts_again():
    assert executed_operations(moved(0).mod) == BOTH
    again = 2 * ROWS * COLUMNS * COLUMNS + 2 * ROWS * COLUMNS
    assert executed_operations(moved(1).mod) == again


def test_first_values_and_tiles_change_nothing():
    schedule = moved(0)
    block = schedule.get_sblock("total")
    inner = schedule.get_loops(block)[-1]
    schedule.split(inner, [None, 8])
    schedule.decompose_reduction(block, schedule.get_loops(block)[1])
    assert executed_operations(schedule.mod) == BOTH + ROWS


@pytest.mark.parametrize("axis", [0, 1])
def test_limit_drops_what_executes_many_times_the_work(axis):
    # Inside the inner loop, the sum of 40 is computed 40 times: 20 times the work of both.
    assert WorkLimit(spread_mean()).apply(moved(axis)) is (axis == 0)


def test_limit_goes_by_the_least_sample_where_all_execute_more():
    assert WorkLimit(spread_mean(), [moved(1).mod]).apply(moved(1))
    assert not WorkLimit(spread_mean(), [moved(1).mod, moved(0).mod]).apply(moved(1))


def test_a_kernel_of_few_elements_is_not_refused():
    """Eight elements in a vectorized loop of 64 with a predicate are 64 stores."""
    x = te.placeholder((8,), name="x")
    copy = te.create_prim_func([x, te.compute((8,), lambda i: x[i], name="y")])
    schedule = Schedule(copy)
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    schedule.split(loop, [2, 64])
    assert executed_operations(schedule.mod) >= 64
    assert WorkLimit(tvm.IRModule({"main": copy})).apply(schedule)
