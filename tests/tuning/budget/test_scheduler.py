# SPDX-License-Identifier: Apache-2.0
"""Runs of TVM's loop under the clock, with a builder and a runner that only pass made-up time."""

import math
from tempfile import mkdtemp

import pytest
from conformance.driving import MadeUpFuture
from tvm_ffi import structural_hash

import tvm
from tvm import te, topi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.tuning.budget.loop import Limits, TuningSetup
from tvm_droplet_ms.tuning.budget.priorities import Priorities, Stake
from tvm_droplet_ms.tuning.budget.scheduler import TuningClock
from tvm_droplet_ms.tuning.budget.tuning_run import tune_tasks_by_clock
from tvm_droplet_papers.graph.pricing.workbench import InTurns

TARGET = Target({"kind": "llvm", "num-cores": 1})
RATES = MachineRates(100e9, (1000,), (10e9,))


class MadeUpClock:
    """A clock that only building moves: a second for each candidate."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@derived_object
class MadeUpBuilder(ms.builder.PyBuilder):
    """Builds nothing. An artifact's name holds the candidate's hash."""

    def __init__(self, clock, fails=False):
        super().__init__()
        self.clock = clock
        self.fails = fails
        self.batches = []

    def build(self, build_inputs):
        self.clock.now += len(build_inputs)
        self.batches.append([build_input.mod for build_input in build_inputs])
        return [
            ms.builder.BuilderResult(
                None if self.fails else f"{mkdtemp()}/{structural_hash(build_input.mod)}",
                "made-up build error" if self.fails else None,
            )
            for build_input in build_inputs
        ]


@derived_object
class MadeUpRunner(ms.runner.PyRunner):
    """A time is a function of the artifact's name."""

    def run(self, runner_inputs):
        hashes = (int(str(entry.artifact_path).rsplit("/", 1)[1]) for entry in runner_inputs)
        return [MadeUpFuture([1e-5 * (1 + hash_ % 1013 / 1013)]) for hash_ in hashes]


def dense(n, weight=1):
    lhs, rhs = te.placeholder((8, 16), name="lhs"), te.placeholder((n, 16), name="rhs")
    mod = tvm.IRModule({"main": te.create_prim_func([lhs, rhs, topi.nn.dense(lhs, rhs)])})
    return ms.ExtractedTask(f"dense {n}", mod, TARGET, [mod], weight)


def strategy(**options):
    quick = {"explore_trials": 2, "prior": None, "stop": None}
    return DropletStrategy(**quick | options)


def tune(tasks, tmp_path, *, clock=None, builder=None, database=None, **options):
    clock = clock or MadeUpClock()
    builder = builder or MadeUpBuilder(clock)
    database = MemoryDatabase() if database is None else database

    def given(*names):
        return {name: options.pop(name) for name in names if name in options}

    setup = TuningSetup(
        *(str(tmp_path), database, builder, MadeUpRunner(), strategy()), **given("space", "seed")
    )
    rules = given("make_priorities", "first_secs")
    limits = Limits(batch=2, **options)
    run = tune_tasks_by_clock(tasks, setup, limits, rates=RATES, clock=clock, **rules)
    return run, builder, database


def rows_of(mod):
    """The rows of a candidate's second argument, which tell its task."""
    # A postprocessor may pack the argument.
    return math.prod(ArgInfo.from_entry_func(mod, remove_preproc=True)[1].shape) // 16


def best_secs(database, task):
    (record,) = database.get_top_k(database.commit_workload(task.dispatched[0]), 1)
    return float(record.run_secs[0])


@pytest.mark.parametrize("rule", [Priorities, InTurns])
def test_every_task_may_have_a_limit_of_its_own(tmp_path, rule):
    tasks = [dense(16), dense(32), dense(64)]
    limits = {"trials": 100, "trials_per_task": 5}
    run, _, database = tune(tasks, tmp_path, make_priorities=rule, **limits)
    # In batches of two.
    assert [row.effort.trials for row in run.rows] == [5, 5, 5]
    assert run.why_ended == "converged" and len(database.get_all_tuning_records()) == 15


def test_first_batches_are_in_order_of_weight_times_roofline(tmp_path):
    tasks = [dense(8), dense(64), dense(16, weight=40), dense(32)]
    run, builder, database = tune(tasks, tmp_path, trials=8)
    assert run.trials == 8 and run.why_ended == "trials"
    assert [row.effort.trials for row in run.rows] == [2, 2, 2, 2]
    assert [rows_of(batch[0]) for batch in builder.batches] == [16, 64, 32, 8]
    for row, task in zip(run.rows, tasks):
        assert row.best_secs == best_secs(database, task)


def test_kernels_whose_first_times_are_known_are_visited_by_what_there_is_to_gain(tmp_path):
    tasks = [dense(8), dense(64), dense(16, weight=40)]
    first = {structural_hash(task.dispatched[0]): 2e-5 for task in tasks}
    first[structural_hash(tasks[0].dispatched[0])] = 1.0
    run, builder, _ = tune(tasks, tmp_path, trials=2, first_secs=first)
    assert [row.effort.trials for row in run.rows] == [2, 0, 0]
    assert rows_of(builder.batches[0][0]) == 8
    run, _, database = tune(tasks, tmp_path, trials=6, first_secs=first)
    assert run.rows[0].best_secs == best_secs(database, tasks[0])
    assert run.rows[0].effort.trials < 6


def test_run_ends_within_a_batch_of_its_deadline(tmp_path):
    tasks = [dense(8), dense(16), dense(32)]
    clock = MadeUpClock()
    run, builder, _ = tune(tasks, tmp_path, clock=clock, deadline=15.0)
    assert run.why_ended == "time"
    # Batches of two take two seconds, and one of them would end after the deadline.
    assert clock.now == 14.0
    assert run.trials == 14
    assert sum(row.effort.secs for row in run.rows) == 14.0


def test_flag_ends_the_run_and_keeps_what_was_measured(tmp_path):
    clock = MadeUpClock()
    run, _, database = tune(
        [dense(8), dense(16)],
        tmp_path,
        clock=clock,
        trials=100,
        should_stop=lambda: "flag" if clock.now >= 6 else "",
    )
    assert run.why_ended == "flag"
    assert run.trials == 6 == len(database.get_all_tuning_records())


def test_second_run_continues(tmp_path):
    tasks = [dense(8), dense(16, weight=50)]
    _, _, database = tune(tasks[1:], tmp_path, trials=4)
    known = best_secs(database, tasks[1])
    run, _, _ = tune(tasks, tmp_path, trials=2, database=database)
    # The heavy task was visited by the first run.
    assert [row.effort.trials for row in run.rows] == [2, 0]
    assert run.rows[1].best_secs == known
    assert len(database.get_all_tuning_records()) == 6


def test_records_of_another_target_are_not_known(tmp_path):
    _, _, database = tune([dense(16)], tmp_path, trials=2)
    other = Target({"kind": "llvm", "num-cores": 8})
    mod = dense(16).dispatched[0]
    task = ms.ExtractedTask("dense", mod, other, [mod], 1)
    run, _, _ = tune([task], tmp_path, deadline=0.0, database=database)
    assert run.rows[0].best_secs == math.inf


def test_exhausted_tasks_end_the_run(tmp_path):
    space = ms.space_generator.ScheduleFn(
        lambda sch: sch.annotate(sch.get_sblock("root"), "made_up", 1),
        sch_rules=[],
        postprocs=[],
        mutator_probs={},
    )
    run, _, _ = tune([dense(8), dense(16)], tmp_path, trials=100, space=space)
    assert run.trials == 2 and run.why_ended == "converged"


def test_failing_builds_do_not_end_the_run(tmp_path):
    clock = MadeUpClock()
    builder = MadeUpBuilder(clock, fails=True)
    run, _, database = tune(
        [dense(8), dense(16)], tmp_path, clock=clock, builder=builder, trials=12
    )
    assert run.trials == 12
    assert min(row.effort.batches for row in run.rows) >= 2
    assert all(row.best_secs == math.inf for row in run.rows)


def test_runs_of_one_seed_are_equal(tmp_path):
    first, second = (
        tune([dense(8), dense(32)], tmp_path / name, trials=8, seed=3)[1].batches for name in "ab"
    )
    assert [list(map(structural_hash, batch)) for batch in first] == [
        list(map(structural_hash, batch)) for batch in second
    ]


def test_task_that_no_schedule_can_change_is_left_out(tmp_path, caplog):
    image = te.placeholder((te.var("n"), 4), name="image")
    mod = tvm.IRModule({"main": te.create_prim_func([image, topi.nn.relu(image)])})
    symbolic = ms.ExtractedTask("symbolic", mod, TARGET, [mod], 1)
    run, _, _ = tune([symbolic, dense(8)], tmp_path, trials=2)
    assert [row.name for row in run.rows] == ["dense 8"]
    assert run.trials == 2
    assert "symbolic is not tuned: an extent of it is known at run time only" in caplog.text


def test_run_without_an_end_is_refused(tmp_path):
    with pytest.raises(ValueError, match="deadline"):
        tune([dense(8)], tmp_path)


def test_no_time_no_trial_and_no_task(tmp_path):
    for tasks, limits, why in (
        ([dense(8)], {"deadline": 0.0}, "time"),
        ([dense(8)], {"trials": 0}, "trials"),
        ([], {"trials": 8}, "converged"),
    ):
        run, builder, _ = tune(tasks, tmp_path, **limits)
        assert run.trials == 0 and run.why_ended == why and not builder.batches


class TestTuningClock:
    """Costs of batches, of which one is measured while the next one is proposed."""

    def clock(self, **options):
        now = MadeUpClock()
        priorities = Priorities([Stake(1.0, 1.0), Stake(1.0, 0.5)])
        return now, TuningClock(priorities, 2, clock=now, **options)

    def results(self, *secs):
        return [ms.runner.RunnerResult([sec], None) for sec in secs]

    def test_a_batch_pays_for_its_proposal_and_for_the_wait_only(self):
        now, timing = self.clock()
        assert timing.next() == 0
        now.now = 3.0
        timing.send(0)
        assert timing.next(busy=(0,)) == 1
        now.now = 10.0
        timing.send(1)
        timing.join()
        now.now = 11.0
        timing.finish(0, self.results(4.0, 3.0))
        timing.join()
        now.now = 13.0
        timing.finish(1, self.results(2.0))
        assert [effort.secs for effort in timing.efforts] == [3.0 + 1.0, 7.0 + 2.0]
        assert [effort.trials for effort in timing.efforts] == [2, 1]

    def test_a_batch_that_is_waited_for_at_once_pays_for_everything(self):
        now, timing = self.clock()
        assert timing.next() == 0
        now.now = 5.0
        timing.finish(0, self.results(4.0))
        assert timing.efforts[0].secs == 5.0

    def test_no_other_task_is_no_end_of_the_run(self):
        _, timing = self.clock()
        assert timing.next(busy=(0, 1)) is None
        assert timing.why_ended == ""
        assert timing.next() == 0


def test_a_batch_is_proposed_before_the_one_before_is_asked_for(tmp_path):
    """TVM asks a runner's future for its result when the scheduler joins the task."""
    events = []

    @derived_object
    class Future(ms.runner.PyRunnerFuture):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def done(self):
            return True

        def result(self):
            events.append(f"result of {self.name}")
            return ms.runner.RunnerResult([1e-5], None)

    @derived_object
    class Runner(ms.runner.PyRunner):
        def run(self, runner_inputs):
            batch = sum(event.startswith("run") for event in events)
            events.append(f"run {batch}")
            return [Future(batch) for _ in runner_inputs]

    builder = MadeUpBuilder(MadeUpClock())
    setup = TuningSetup(str(tmp_path), MemoryDatabase(), builder, Runner(), strategy())
    tasks = [dense(8), dense(16), dense(32)]
    tune_tasks_by_clock(tasks, setup, Limits(batch=1, trials=3), rates=RATES)
    assert events[:4] == ["run 0", "run 1", "result of 0", "run 2"]
    assert sorted(events[4:]) == ["result of 1", "result of 2"]
