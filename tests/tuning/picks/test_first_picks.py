# SPDX-License-Identifier: Apache-2.0
"""First picks: the best predicted schedule of every task, and the database that applies them."""

from concurrent.futures import Future

import numpy as np
import pytest
from conformance.workloads import Reject
from tvm_ffi import structural_hash

import tvm
from tvm import relax, te, topi
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.target import Target
from tvm.tirx import ForKind
from tvm_droplet_ms.measure.pool import TaskFailed, ThisProcess
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.tuning.picks import first_picks, pick_sampling
from tvm_droplet_ms.tuning.picks.first_picks import is_tunable
from tvm_droplet_ms.tuning.picks.pick_workers import (
    PickWorkers,
    WarmStart,
    start_workers,
)
from tvm_droplet_ms.tuning.picks.picks import FirstPicks, PickFile
from tvm_droplet_ms.tuning.picks.plain_schedule import plain_schedule
from tvm_droplet_ms.tuning.schedules import database_to_apply

TARGET = Target({"kind": "llvm", "num-cores": 1})
RATES = MachineRates(100e9, (1000,), (10e9,))
QUICK = {"rates": RATES, "known": None}


def pick_schedules(tasks, prior="auto", known="auto", **options):
    return first_picks.pick_schedules(tasks, warm_start=WarmStart(prior, known), **options)


@derived_object
class HashModel(ms.cost_model.PyCostModel):
    """A cost model that is a fixed function of the module."""

    def __init__(self):
        super().__init__()
        self.asked = 0

    def load(self, path):
        pass

    def save(self, path):
        pass

    def update(self, context, candidates, results):
        raise AssertionError("a pick is no measurement")

    def predict(self, context, candidates):
        self.asked += len(candidates)
        return np.array([score(candidate.sch.mod) for candidate in candidates])


def score(mod):
    return structural_hash(mod) % 1009 / 1009


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(first_picks, "MOST", 6)
    monkeypatch.setattr(first_picks, "LEAST", 2)


@pytest.fixture
def six(monkeypatch):
    """Six samples of light tasks too."""
    monkeypatch.setattr(first_picks, "LEAST", 6)


def scheduled(pick):
    schedule = Schedule(pick.mod)
    pick.trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule


def network():
    """A dense layer with an activation, then another of other extents."""
    builder = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType((4, 16), "float32"))
    weights = [
        relax.Var(f"weight{index}", relax.TensorType(shape, "float32"))
        for index, shape in enumerate([(16, 32), (32, 8)])
    ]
    with builder.function("main", [image, *weights]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(relax.op.matmul(image, weights[0])))
            out = builder.emit_output(relax.op.matmul(hidden, weights[1]))
        builder.emit_func_output(out)
    with TARGET:
        return relax.get_pipeline("zero")(builder.get())


def dense(n, target=TARGET, weight=1, name="dense"):
    lhs, rhs = te.placeholder((8, 16), name="lhs"), te.placeholder((n, 16), name="rhs")
    mod = tvm.IRModule({"main": te.create_prim_func([lhs, rhs, topi.nn.dense(lhs, rhs)])})
    return ms.ExtractedTask(name, mod, target, [mod], weight)


def total(name):
    """A sum over all elements, which has no loop to vectorize."""
    data = te.placeholder((8, 16), name="data")
    mod = tvm.IRModule({"main": te.create_prim_func([data, topi.sum(data)])})
    return ms.ExtractedTask(name, mod, TARGET, [mod], 1)


@pytest.fixture(scope="module")
def module():
    return network()


@pytest.fixture(scope="module")
def tasks(module):
    return ms.relax_integration.extract_tasks(module, TARGET)


def run(mod, arguments):
    machine = relax.VirtualMachine(tvm.compile(mod, TARGET), tvm.cpu())
    return machine["main"](*[tvm.runtime.tensor(argument) for argument in arguments]).numpy()


def apply(module, database):
    with TARGET, database:
        return relax.transform.MetaScheduleApplyDatabase()(module)


def naive(module):
    return [
        variable.name_hint
        for variable, function in module.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
        and not (function.attrs or {}).get("tirx.is_scheduled", False)
    ]


def test_no_kernel_is_left_naive(module, tasks):
    picks = pick_schedules(tasks, prior=HashModel(), **QUICK)
    assert len(picks) == len(tasks) == 2
    applied = apply(module, database_to_apply(MemoryDatabase(), picks, TARGET))
    assert len(naive(module)) == 2
    assert naive(applied) == []
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(s, dtype="float32") for s in ((4, 16), (16, 32), (32, 8))]
    image, first, second = arguments
    expected = np.maximum(image @ first, 0) @ second
    np.testing.assert_allclose(run(applied, arguments), expected, rtol=1e-4, atol=1e-4)


def test_pick_is_best_predicted_of_distinct_samples(tasks, six):
    model = HashModel()
    picks = pick_schedules(tasks, prior=model, **QUICK)
    # The plain schedule is the seventh.
    assert model.asked == 7 * len(tasks)
    for pick in picks:
        assert list(pick.predicted) == sorted(pick.predicted, reverse=True)
        assert len(set(pick.points)) == 6
        plain = plain_schedule(pick.mod)
        assert score(scheduled(pick).mod) == max(pick.predicted[0], score(plain.mod))


def is_vectorized(schedule, name):
    """True if a loop around a block is vectorized; False without that block."""
    try:
        block = schedule.get_sblock(name)
    except Exception:
        return False
    return any(schedule.get(loop).kind == ForKind.VECTORIZED for loop in schedule.get_loops(block))


@derived_object
class VectorModel(HashModel._cls):
    """A cost model that likes a vectorized sum."""

    def predict(self, context, candidates):
        return np.array(
            [float(is_vectorized(candidate.sch, "total_update")) for candidate in candidates]
        )


def test_a_reduction_over_outer_axes_is_vectorized():
    """A mean in NHWC: TVM vectorizes innermost loops only, and that is one of the reduction."""
    data = te.placeholder((1, 20, 20, 96), name="data")
    rows, columns = te.reduce_axis((0, 20), name="rows"), te.reduce_axis((0, 20), name="columns")
    total = te.compute(
        (1, 96), lambda n, c: te.sum(data[n, rows, columns, c], axis=[rows, columns]), name="total"
    )
    mod = tvm.IRModule({"main": te.create_prim_func([data, total])})
    task = ms.ExtractedTask("mean", mod, TARGET, [mod], 1)
    (pick,) = pick_schedules([task], prior=VectorModel(), **QUICK)
    schedule = scheduled(pick)
    array = np.random.default_rng(0).random((1, 20, 20, 96), dtype="float32")
    out = tvm.runtime.empty((1, 96), "float32")
    tvm.compile(schedule.mod, TARGET)(tvm.runtime.tensor(array), out)
    np.testing.assert_allclose(out.numpy(), array.sum((1, 2)), rtol=1e-5)
    assert is_vectorized(schedule, "total_update")


def test_pick_of_a_task_does_not_depend_on_the_others(tasks, six):
    together = pick_schedules(tasks, prior=HashModel(), **QUICK)
    for task in tasks:
        alone = pick_schedules([task], prior=HashModel(), **QUICK)
        mod = task.dispatched[0]
        assert alone.find(mod, TARGET).points == together.find(mod, TARGET).points


def test_without_a_model_one_schedule_is_drawn():
    picks = pick_schedules([dense(8)], prior=None, **QUICK)
    (pick,) = picks
    assert pick.predicted == ()
    assert pick.points


def test_a_late_pick_is_used_again_but_where_there_is_time_for_a_better_one(tmp_path):
    model, task = HashModel(), dense(8)
    (late,) = pick_schedules([task], prior=model, work_dir=tmp_path, pace=Slow(1), **QUICK)
    asked = model.asked
    assert asked == 2
    for pace in (Slow(1), Slow(0)):
        (again,) = pick_schedules([task], prior=model, work_dir=tmp_path, pace=pace, **QUICK)
        assert again.points == late.points
        assert model.asked == asked
    short, ample = Slow(), Slow()
    short.is_ample = False
    for pace, known in ((short, ()), (ample, {structural_hash(late.mod)})):
        pick_schedules([task], prior=model, work_dir=tmp_path, pace=pace, measured=known, **QUICK)
        assert pace.expected == 0
        assert model.asked == asked
    pace = Slow(12)
    pick_schedules([task], prior=model, work_dir=tmp_path, pace=pace, **QUICK)
    assert pace.expected == 1
    assert model.asked == asked + 7
    pick_schedules([task], prior=model, work_dir=tmp_path, pace=Slow(), **QUICK)
    assert model.asked == asked + 7


class Slow:
    """A pace of so many samples of each task."""

    def __init__(self, *counts):
        self.counts, self.wishes, self.taken = list(counts), [], []
        self.expected, self.is_ample, self.is_over = None, True, False

    def expect(self, kernels):
        self.expected = kernels

    def count(self, wish, *, is_heavy):
        self.wishes.append((wish, is_heavy))
        return self.counts.pop(0)

    def done(self, samples, secs):
        self.taken.append((samples, secs >= 0))


def test_clock_says_how_many_are_sampled_and_what_has_a_plain_schedule(six):
    model, pace = HashModel(), Slow(8, 4, 0)
    tasks = [dense(n, weight=64 // n, name=f"dense{n}") for n in (8, 16, 32)]
    picks = pick_schedules(tasks, prior=model, pace=pace, **QUICK)
    # Half of the samples are left to known schedules, of which there are none here.
    assert pace.wishes == [(12, True)] * 3 and model.asked == 5 + 3
    assert picks.unscheduled == {}
    plain = picks.find(tasks[2].dispatched[0], TARGET)
    assert "T.vectorized" in scheduled(plain).mod.script() and plain.points == ()
    # The first one is not counted: it waits for the processes to start.
    assert pace.taken == [(4, True)]


def test_after_the_deadline_a_kernel_is_left_as_it_is():
    pace = Slow(0)
    pace.is_over = True
    picks = pick_schedules([dense(8, name="late")], prior=None, pace=pace, **QUICK)
    assert picks.unscheduled == {"late": "the time is too short to pick one"}
    assert len(picks) == 0


def test_kept_picks_are_used_again(tmp_path):
    model = HashModel()
    tasks = [dense(8, weight=30), dense(24)]
    made = pick_schedules(tasks, prior=model, work_dir=tmp_path, **QUICK)
    asked = model.asked
    again = pick_schedules(tasks, prior=model, work_dir=tmp_path, seed=1, **QUICK)
    assert model.asked == asked == 7 + 3
    for task in tasks:
        before, after = (picks.find(task.dispatched[0], TARGET) for picks in (made, again))
        assert before.points == after.points
        assert str(before.trace) == str(after.trace)
    assert len(PickFile(tmp_path).path.read_text().splitlines()) == 2


def test_pick_of_another_workload_or_target_is_not_used(tmp_path):
    model = HashModel()
    pick_schedules([dense(8)], prior=model, work_dir=tmp_path, **QUICK)
    other = Target({"kind": "llvm", "num-cores": 2})
    pick_schedules([dense(24)], prior=model, work_dir=tmp_path, **QUICK)
    pick_schedules([dense(8, other)], prior=model, work_dir=tmp_path, **QUICK)
    assert model.asked == 21


@pytest.mark.parametrize(
    ("damaged", "readable"),
    [
        (lambda line: line[:-40], 0),
        # The block's name is in the trace alone.
        (lambda line: line.replace(b"T_matmul_NT", b"T_other"), 1),
    ],
)
def test_torn_pick_or_one_that_no_longer_replays_is_made_anew(damaged, readable, tmp_path):
    model, file = HashModel(), PickFile(tmp_path)
    pick_schedules([dense(8)], prior=model, work_dir=tmp_path, **QUICK)
    file.path.write_bytes(damaged(file.path.read_bytes()))
    assert len(file.read()) == readable
    assert len(pick_schedules([dense(8)], prior=model, work_dir=tmp_path, **QUICK)) == 1
    assert model.asked == 14 and len(file.read()) == 1


@pytest.fixture
def rejecting(monkeypatch):
    """A design space all of whose schedules are rejected."""
    space = ms.space_generator.ScheduleFn(
        lambda sch: None, sch_rules=[], postprocs=[Reject()], mutator_probs={}
    )
    monkeypatch.setattr(pick_sampling, "SPACE", space)


def test_task_without_a_valid_schedule_is_named_and_left(rejecting):
    picks = pick_schedules([total("rejected")], prior=None, **QUICK)
    assert len(picks) == 0
    assert list(picks.unscheduled) == ["rejected"]
    assert "PyPostproc" in picks.unscheduled["rejected"]
    (note,) = picks.unscheduled_notes()
    assert note.startswith("rejected has no schedule and stays as it is: all samples were dropped")


def test_without_a_valid_sample_a_plain_schedule_is_picked(rejecting):
    (pick,) = pick_schedules([dense(8)], prior=None, **QUICK)
    assert "T.vectorized" in scheduled(pick).mod.script() and pick.points == ()


def test_task_that_no_schedule_can_change_is_not_sampled():
    data = te.placeholder((4, 6), name="data")
    mod = tvm.IRModule({"main": te.create_prim_func([data, topi.cumsum(data, axis=0)])})
    empty = te.placeholder((0, 6), name="empty")
    none = tvm.IRModule({"main": te.create_prim_func([empty, topi.nn.relu(empty)])})
    some = te.placeholder((te.var("rows", "int64"), 6), name="some")
    late = tvm.IRModule({"main": te.create_prim_func([some, topi.nn.relu(some)])})
    tasks = [
        ms.ExtractedTask("blockless", mod, TARGET, [mod], 1),
        ms.ExtractedTask("nothing", none, TARGET, [none], 1),
        ms.ExtractedTask("late", late, TARGET, [late], 1),
    ]
    assert not any(map(is_tunable, tasks))
    picks = pick_schedules(tasks, workers=FailingWorkers("crash"), **QUICK)
    assert "without blocks" in picks.unscheduled["blockless"]
    assert "extent of it is 0" in picks.unscheduled["nothing"]
    assert "run time" in picks.unscheduled["late"]


def test_notes_name_a_few_of_the_tasks_of_a_reason():
    picks = FirstPicks(dict.fromkeys("abcde", "no time") | {"f": "no blocks"})
    assert picks.unscheduled_notes() == [
        "a, b, c and 2 others have no schedule and stay as they are: no time",
        "f has no schedule and stays as it is: no blocks",
    ]


def test_task_whose_space_fails_does_not_stop_the_others(monkeypatch):
    def make(sch):
        if sch.get_child_blocks(sch.get_sblock("root"))[0] and "data_red" in sch.mod.script():
            raise ValueError("made-up fault")

    space = ms.space_generator.ScheduleFn(make, sch_rules=[], postprocs=[], mutator_probs={})
    monkeypatch.setattr(pick_sampling, "SPACE", space)
    tasks = [total("faulty"), dense(8, name="sound")]
    picks = pick_schedules(tasks, prior=None, **QUICK)
    assert list(picks.unscheduled) == ["faulty"]
    assert "made-up fault" in picks.unscheduled["faulty"]
    assert picks.find(tasks[1].dispatched[0], TARGET) is not None


def test_scheduled_task_is_left_out():
    task = dense(8)
    mod = task.mod.with_attr("tirx.is_scheduled", True)
    scheduled = ms.ExtractedTask("scheduled", mod, TARGET, [mod], 1)
    assert is_tunable(task) and not is_tunable(scheduled)
    assert len(pick_schedules([scheduled], prior=None, **QUICK)) == 0
    # A kernel that was written by hand says so itself: it has no pick, and no note about that.
    kernel = task.dispatched[0]["main"].with_attr("tirx.is_scheduled", True)
    written = tvm.IRModule({"main": kernel})
    picks = pick_schedules(
        [ms.ExtractedTask("written", written, TARGET, [written], 1)], prior=None, **QUICK
    )
    assert len(picks) == 0 and not picks.unscheduled


def test_database_has_measured_records_where_there_are_valid_ones():
    other = Target({"kind": "llvm", "num-cores": 64})
    tasks = {n: dense(n) for n in (8, 16, 24, 32)}
    picks = pick_schedules(list(tasks.values()), prior=None, **QUICK)
    measured = MemoryDatabase()
    records = {
        8: [([3e-3, 3e-3], TARGET), ([2e-3], TARGET), ([1e10], TARGET), ([1e-3], other)],
        16: [([1e10], TARGET)],
        24: [([1e-3], other)],
    }
    for n, entries in records.items():
        mod = tasks[n].dispatched[0]
        workload = measured.commit_workload(mod)
        for secs, target in entries:
            trace = picks.find(mod, TARGET).trace
            measured.commit_tuning_record(TuningRecord(trace, workload, secs, target))
    database = database_to_apply(measured, picks, TARGET)
    for n, task in tasks.items():
        mod = task.dispatched[0]
        (record,) = database.get_top_k(database.commit_workload(mod), 10)
        # TVM asks for a time of each record; a pick has none.
        assert [float(sec) for sec in record.run_secs] == ([2e-3] if n == 8 else [1.0])
        assert str(record.trace) == str(picks.find(mod, TARGET).trace)
    assert len(measured.get_all_tuning_records()) == 6


class TestWorkers:
    def test_pick_the_same(self, tasks):
        options = {"rates": RATES}
        pool = start_workers()
        try:
            theirs = pick_schedules(tasks, workers=PickWorkers(pool), **options)
        finally:
            pool.close()
        ours = pick_schedules(tasks, **options)
        assert len(theirs) == len(ours) == len(tasks)
        for their, our in zip(theirs, ours, strict=True):
            assert their.points == our.points
            assert their.predicted == our.predicted != ()
            assert str(their.trace) == str(our.trace)

    def test_are_done_without_where_they_cannot_run(self):
        picks = pick_schedules([dense(8)], workers=FailingWorkers("machinery"), **QUICK)
        assert len(picks) == 1

    def test_cost_a_crash_only_its_task(self):
        picks = pick_schedules([dense(8)], workers=FailingWorkers("crash"), **QUICK)
        assert len(picks) == 0
        assert picks.unscheduled == {"dense": "it ended"}

    def test_get_one_schedule_of_a_task_that_takes_too_long(self, tmp_path):
        workers = SlowWorkers(PickWorkers(ThisProcess(), None), most=1)
        picks = pick_schedules([dense(8)], work_dir=tmp_path, workers=workers, **QUICK)
        assert len(picks) == 1 and not picks.unscheduled
        assert [(count > 1, is_asked) for count, is_asked in workers.asked][1:] == [(False, False)]
        # The next run does not wait for the time limit again.
        again = pick_schedules([dense(8)], work_dir=tmp_path, workers=FailingWorkers("x"), **QUICK)
        assert len(again) == 1

    def test_a_task_whose_single_schedule_takes_too_long_gets_a_plain_one(self):
        workers = SlowWorkers(PickWorkers(ThisProcess(), None), most=0)
        (pick,) = pick_schedules([dense(8)], workers=workers, **QUICK)
        assert "T.vectorized" in scheduled(pick).mod.script()
        assert len(workers.asked) == 2

    def test_leave_a_task_that_has_no_plain_schedule_either(self, monkeypatch):
        monkeypatch.setattr(first_picks, "plain_schedule", lambda _: None)
        workers = SlowWorkers(PickWorkers(ThisProcess(), None), most=0)
        picks = pick_schedules([dense(8)], workers=workers, **QUICK)
        assert picks.unscheduled == {"dense": "killed after 120 s, its time limit"}
        assert len(workers.asked) == 2

    def test_a_task_may_take_a_share_of_the_time_that_is_left(self):
        pool, left = TimedPool(), [100.0, 5.0, 1e9]
        workers = PickWorkers(pool, None, lambda: left.pop(0))
        for _ in range(3):
            workers.submit("key", "request", True)
        assert pool.timeouts == [20.0, 3.0, 120.0]


class TimedPool:
    """Workers that keep the time limits of their tasks."""

    def __init__(self):
        self.timeouts = []

    def submit(self, timeout, *_task):
        self.timeouts.append(timeout)


class SlowWorkers:
    """Workers that have the time for so many schedules of a task."""

    def __init__(self, sampler, most):
        self.sampler, self.most, self.asked = sampler, most, []

    def submit(self, key, request, is_asked):
        self.asked.append((request.count, is_asked))
        if request.count <= self.most:
            return self.sampler.submit(key, request, is_asked)
        future = Future()
        future.set_exception(TaskFailed("timeout", "killed after 120 s, its time limit"))
        return future


class FailingWorkers:
    """Workers without an answer."""

    def __init__(self, kind):
        self.kind = kind

    def submit(self, key, request, is_asked):
        future = Future()
        future.set_exception(TaskFailed(self.kind, "it ended"))
        return future
