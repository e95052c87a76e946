# SPDX-License-Identifier: Apache-2.0
"""First picks are measured: the fastest is kept, with made-up builders, runners and clocks."""

import math
from types import SimpleNamespace

import pytest
from made_up_contest import TARGET, Table, applied, contest, picked, relu, split
from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm_droplet_ms.measure.failures import MACHINERY_FAILURE
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.picks.pick_contest import (
    AT_ONCE,
    Finalists,
    measure_finalists,
)
from tvm_droplet_ms.tuning.picks.pick_pace import weighing
from tvm_droplet_ms.tuning.picks.picks import FirstPick, FirstPicks, PickFile, restore, task_key
from tvm_droplet_ms.tuning.schedules import database_to_apply


@pytest.fixture
def mod():
    return relu(8).dispatched[0]


def test_fastest_is_found_whatever_comes_first(mod):
    traces = [split(mod, factor) for factor in (2, 4, 8)]
    times = dict(zip((applied(mod, trace) for trace in traces), (5.0, 0.5, 3.0), strict=True))
    table = Table(times)
    (fastest,) = measure_finalists([Finalists(mod, tuple(traces))], TARGET, table, table)
    assert fastest.secs == 0.5 and applied(mod, fastest.trace) == applied(mod, traces[1])
    assert fastest.pick_secs == 5.0


def test_unscheduled_kernel_is_kept_where_it_is_the_fastest(mod):
    table = Table({structural_hash(mod): 0.1})
    finalists = Finalists(mod, (split(mod, 2), split(mod, 4)))
    (fastest,) = measure_finalists([finalists], TARGET, table, table)
    assert fastest.secs == 0.1 and applied(mod, fastest.trace) == structural_hash(mod)
    assert len(fastest.trace.insts) == 0


def test_without_a_pick_the_unscheduled_kernel_is_what_is_replaced(mod):
    table = Table({structural_hash(mod): 0.75, applied(mod, split(mod, 4)): 0.5})
    finalists = Finalists(mod, (split(mod, 2), split(mod, 4)), has_pick=False)
    (fastest,) = measure_finalists([finalists], TARGET, table, table)
    assert (fastest.secs, fastest.pick_secs) == (0.5, 0.75)


def test_failures_cost_only_themselves(mod):
    broken, crashing, sound = (split(mod, factor) for factor in (2, 4, 8))
    times = {applied(mod, broken): None, applied(mod, crashing): 1e9, applied(mod, sound): 0.5}
    table = Table(times)
    others = relu(24).dispatched[0]
    found = measure_finalists(
        [Finalists(mod, (broken, crashing, sound)), Finalists(others, ())], TARGET, table, table
    )
    assert [fastest.secs for fastest in found] == [0.5, 1.0]
    assert [fastest.pick_secs for fastest in found] == [math.inf, math.inf]
    nothing = Table({}, default=None)
    assert measure_finalists([Finalists(mod, (sound,))], TARGET, nothing, nothing) == [None]


def test_a_workload_that_the_time_was_too_short_for_keeps_what_it_has(mod):
    """The unscheduled kernel is the last, and may be the fastest."""

    class Cut(Table):
        def run(self, inputs):
            over = RunnerResult([], f"{MACHINERY_FAILURE}the time is over")
            return [*super().run(inputs)[:-1], SimpleNamespace(result=lambda: over)]

    others = relu(24).dispatched[0]
    tasks = [Finalists(others, (split(others, 2),)), Finalists(mod, (split(mod, 2),))]
    fastest, cut = measure_finalists(tasks, TARGET, Cut({}), Cut({}))
    assert fastest.secs == 1.0 and cut is None


def test_equal_schedules_are_measured_once(mod):
    table = Table({})
    measure_finalists([Finalists(mod, (split(mod, 2), split(mod, 2)))], TARGET, table, table)
    assert len(table.built[0]) == 2


def test_tasks_that_weigh():
    assert weighing([1.0, 80.0, 0.0, 19.0], 0.98) == [1, 3]
    assert weighing([1.0, 80.0, 0.0, 19.0], 1.0) == [1, 3, 0]
    assert weighing([0.0, 0.0], 1.0) == [] and weighing([], 0.9) == []


def test_slow_pick_is_replaced_and_kept_for_the_next_run(tmp_path):
    task = relu(8)
    mod = task.dispatched[0]
    table = Table({applied(mod, split(mod, 8)): 0.25})
    picks = picked(task)
    assert contest(table, tmp_path).run([task], picks, {"relu8": 1.0}, StopRequest(), 0.1) == 1
    pick = picks.find(mod, TARGET)
    assert pick.secs == 0.25 and applied(mod, pick.trace) == applied(mod, split(mod, 8))
    assert pick.points == ((0, (2,)),) and pick.replaced_secs == 1.0
    stored = restore(mod, PickFile(tmp_path).read()[task_key(mod, TARGET)], True)
    assert stored.secs == 0.25 and applied(mod, stored.trace) == applied(mod, pick.trace)
    # It is not measured again.
    assert contest(table, tmp_path).run([task], picks, {"relu8": 1.0}, StopRequest(), 0.1) == 0


@pytest.mark.parametrize(
    ("build_secs", "left", "batches"),
    [
        # 60 builds for four kernels, and 30 for starting: 9 s at first. Each batch takes 20 s.
        (0.1, 14.0, [4]),
        (0.1, 60.0, [4, 3]),
        (0.1, 8.0, [3]),
        (0.1, 4.0, []),
        (1.0, 60.0, [2, 4, 1]),
    ],
)
def test_heaviest_are_first_and_as_many_as_there_is_time_for(build_secs, left, batches, tmp_path):
    tasks = [relu(8 * size) for size in range(1, AT_ONCE + 4) if size != 3]
    tasks.append(relu(8 * 9))
    secs = {str(task.task_name): 1.0 + place for place, task in enumerate(tasks)}
    now = [0.0]

    class Slow(Table):
        def build(self, inputs):
            now[0] += 20.0
            return super().build(inputs)

    table = Slow({})
    picks = picked(*tasks)
    stop = StopRequest(left, lambda: now[0])
    measuring = contest(table, tmp_path, lambda: now[0])
    count = measuring.run(tasks, picks, secs, stop, build_secs)
    # Two sampled schedules of each kernel, that which it has, and the unscheduled one.
    assert [len(built) // 4 for built in table.built] == batches
    measured = [t for t in tasks if picks.find(t.dispatched[0], TARGET).secs is not None]
    assert count == sum(batches) and measured == tasks[len(tasks) - count :]


def test_what_is_built_and_timed_ends_with_the_time(tmp_path):
    table, task = Table({}), relu(8)
    stop = StopRequest(50.0, lambda: 0.0)
    contest(table, tmp_path).run([task], picked(task), {"relu8": 1.0}, stop, 0.1)
    # The builder and the runner, which serve the tuning without a limit afterwards.
    assert table.ends == [50.0, 50.0, math.inf, math.inf]


def test_task_whose_sampling_fails_is_measured_with_what_it_has(tmp_path):
    task = relu(24)
    mod = task.dispatched[0]
    picks = picked(task)
    table = Table({applied(mod, split(mod, 2)): 2.0, structural_hash(mod): 3.0})
    contest(table, tmp_path).run([task], picks, {"relu24": 1.0}, StopRequest(), 0.1)
    assert picks.find(mod, TARGET).secs == 2.0 and len(table.built[0]) == 2


@pytest.mark.parametrize(("secs", "is_pick"), [(0.5, True), (2.0, False), (None, False)])
def test_model_gets_the_faster_of_a_record_and_a_measured_pick(mod, secs, is_pick):
    measured = MemoryDatabase()
    workload = measured.commit_workload(mod)
    measured.commit_tuning_record(TuningRecord(split(mod, 4), workload, [1.0], TARGET))
    picks = FirstPicks()
    picks.keep(FirstPick(mod, split(mod, 2), (), (), secs), TARGET)
    database = database_to_apply(measured, picks, TARGET)
    (record,) = database.get_top_k(database.commit_workload(mod), 10)
    assert applied(mod, record.trace) == applied(mod, split(mod, 2 if is_pick else 4))
