# SPDX-License-Identifier: Apache-2.0
"""Schedules that cannot be the fastest are not run, with made-up times."""

from types import SimpleNamespace

import pytest
from made_up_contest import RATES, TARGET, Table, applied, contest, picked, split
from tvm_ffi import structural_hash

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.design_space.dot_products.dot_intrinsics import lane_sum, register_dots
from tvm_droplet_ms.measure.failures import MACHINERY_FAILURE
from tvm_droplet_ms.session.roofline import least_vector_secs
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.picks.pick_contest import UNSCHEDULED, Finalists, measure_finalists

VECTOR_SECS = 1.0
CRASH = 1e9


@pytest.fixture
def mod():
    """Sums of 16 numbers."""
    data, k = te.placeholder((64, 16), name="data"), te.reduce_axis((0, 16), "k")
    sums = te.compute((64,), lambda i: te.sum(data[i, k], axis=[k]), name="sums")
    return tvm.IRModule({"main": te.create_prim_func([data, sums])})


def tensorized(mod):
    register_dots()
    schedule = Schedule(mod, debug_mask="none")
    block = schedule.get_sblock("sums")
    _, k = schedule.get_loops(block)
    schedule.decompose_reduction(block, k)
    schedule.tensorize(k, lane_sum(16))
    return schedule.trace


def measured(mod, traces, secs, unscheduled, **options):
    """The fastest, and the seconds of what ran; ``secs``: of each trace."""
    table = Table({applied(mod, trace): each for trace, each in zip(traces, secs, strict=True)})
    table.secs[structural_hash(mod)] = unscheduled
    finalists = Finalists(mod, tuple(traces), vector_secs=VECTOR_SECS, **options)
    (fastest,) = measure_finalists([finalists], TARGET, table, table)
    assert len(table.built[0]) == len(traces) + 1
    return fastest, [table.secs[each] for each in table.ran]


def test_unscheduled_kernel_that_cannot_win_is_not_run(mod):
    fastest, ran = measured(mod, [split(mod, 4)], [0.9 * UNSCHEDULED], 0.5)
    assert ran == [fastest.secs] == [0.9 * UNSCHEDULED]


def test_unscheduled_kernel_that_can_win_is_run(mod):
    fastest, ran = measured(mod, [split(mod, 4)], [1.1 * UNSCHEDULED], 0.5)
    assert ran == [1.1 * UNSCHEDULED, 0.5] and fastest.secs == 0.5
    assert fastest.pick_secs == 1.1 * UNSCHEDULED


def test_vectors_that_cannot_beat_a_tensorized_schedule_are_not_run(mod):
    traces = [tensorized(mod), split(mod, 4)]
    fastest, ran = measured(mod, traces, [0.9, 0.5], 0.25)
    assert ran == [0.9] and fastest.secs == 0.9


def test_vectors_that_can_win_are_run_before_the_unscheduled_kernel(mod):
    traces = [tensorized(mod), split(mod, 4)]
    fastest, ran = measured(mod, traces, [5.0, 2.0], 0.25)
    assert ran == [5.0, 2.0] and fastest.secs == 2.0 and fastest.pick_secs == 5.0


def test_pick_is_run_whatever_it_is(mod):
    fastest, ran = measured(mod, [split(mod, 4), tensorized(mod)], [2.0, 0.5], 0.25)
    assert ran == [2.0, 0.5] and fastest.pick_secs == 2.0
    # Without a pick, the unscheduled kernel is what is replaced.
    fastest, ran = measured(mod, [tensorized(mod)], [0.5], 9.0, has_pick=False)
    assert ran == [0.5, 9.0] and (fastest.secs, fastest.pick_secs) == (0.5, 9.0)


def test_sampled_schedule_that_changes_nothing_is_the_pick_if_there_is_none(mod):
    """It is run although it cannot be as fast as the tensorized one."""
    same = Schedule(mod, debug_mask="none").trace
    table = Table({applied(mod, tensorized(mod)): 0.5, structural_hash(mod): 9.0})
    finalists = Finalists(mod, (tensorized(mod), same), False, VECTOR_SECS)
    (fastest,) = measure_finalists([finalists], TARGET, table, table)
    assert (fastest.secs, fastest.pick_secs) == (0.5, 9.0)


def test_where_all_are_in_vectors_all_are_run(mod):
    """The peak rate is a measurement, and the second may be as fast as it."""
    fastest, ran = measured(mod, [split(mod, 4), split(mod, 8)], [0.99, 0.98], 0.25)
    assert ran == [0.99, 0.98] and fastest.secs == 0.98


def test_what_crashes_excludes_nothing(mod):
    traces = [tensorized(mod), split(mod, 4)]
    fastest, ran = measured(mod, traces, [CRASH, CRASH], 7.0)
    assert ran == [CRASH, CRASH, 7.0] and fastest.secs == 7.0
    fastest, ran = measured(mod, traces, [CRASH, 2.0], 0.25)
    assert ran == [CRASH, 2.0] and fastest.secs == 2.0


def test_nothing_more_is_run_of_a_workload_whose_result_is_dropped(mod):
    class Ending(Table):
        def _result(self, _key):
            return SimpleNamespace(run_secs=[], error_msg=f"{MACHINERY_FAILURE}the time is over")

    table = Ending({})
    finalists = Finalists(mod, (tensorized(mod), split(mod, 4)), vector_secs=VECTOR_SECS)
    assert measure_finalists([finalists], TARGET, table, table) == [None]
    assert table.ran == [applied(mod, tensorized(mod))]


@pytest.mark.parametrize(("share", "runs"), [(0.9, False), (1.1, True)])
def test_contest_bounds_a_kernel_by_its_sums(mod, share, runs, tmp_path):
    task = ms.ExtractedTask("sums", mod, TARGET, [mod], 1)
    bound = UNSCHEDULED * least_vector_secs(mod, RATES)
    assert bound == pytest.approx(UNSCHEDULED * 64 * 16 / RATES.flops_per_sec)
    table = Table({}, default=share * bound)
    contest(table, tmp_path).run([task], picked(task), {"sums": 1.0}, StopRequest(), 0.1)
    assert len(table.built[0]) == 4
    assert (structural_hash(mod) in table.ran) == runs
