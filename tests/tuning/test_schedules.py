# SPDX-License-Identifier: Apache-2.0
"""Schedules of a model's kernels: near-best ones told apart inside it, kept, shown, and left."""

import math

import numpy as np
import pytest
from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.relax.frontend import nn
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.testing.te_workload import matmul
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target
from tvm.te import create_prim_func
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.session.work_dir import open_work_dir
from tvm_droplet_ms.tuning import choices as inside_model
from tvm_droplet_ms.tuning import tune
from tvm_droplet_ms.tuning.choices import faster_inside
from tvm_droplet_ms.tuning.kernel_table import schedules_as_python
from tvm_droplet_ms.tuning.kernel_tuner import KernelTuner
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.picks.first_picks import pick_schedules
from tvm_droplet_ms.tuning.picks.pick_workers import WarmStart
from tvm_droplet_ms.tuning.picks.plain_schedule import plain_schedule
from tvm_droplet_ms.tuning.schedules import (
    CHOICE,
    fastest_variant,
    keep_choice,
    kept_choice,
    near_best,
    with_ranks,
)

TARGET = cpu_target("auto", 1)
OTHER_TARGET = Target({"kind": "llvm", "num-cores": 2})
MOD = IRModule({"main": create_prim_func(matmul(8, 8, 8))})
KEY = structural_hash(MOD)

ROWS = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")


def database_of(*secs, target=TARGET):
    """A database with a record of each time, told apart by a parallel extent in the trace."""
    database = MemoryDatabase()
    workload = database.commit_workload(MOD)
    for number, times in enumerate(secs):
        schedule = Schedule(MOD)
        schedule.annotate(schedule.get_sblock("C"), "number", number)
        database.commit_tuning_record(TuningRecord(schedule.trace, workload, times, target))
    return database


def numbers(records):
    return [
        int(str(record.trace).rpartition("ann_val=")[2].partition(")")[0]) for record in records
    ]


class TestNearBest:
    def test_ranks_those_close_to_the_best_by_their_mean(self):
        ranked = near_best(database_of([1.08], [1.2], [0.9, 1.1], [1.04]), TARGET)
        assert numbers(ranked[KEY]) == [2, 3, 0]

    def test_keeps_at_most_three(self):
        assert len(near_best(database_of(*[[1.0]] * 5), TARGET)[KEY]) == 3

    @pytest.mark.parametrize("times", [[], [1e10]])
    def test_leaves_out_failures(self, times):
        ranked = near_best(database_of(times, [1.0]), TARGET)
        assert numbers(ranked[KEY]) == [1]

    def test_leaves_out_other_targets(self):
        assert near_best(database_of([1.0], target=OTHER_TARGET), TARGET) == {}


class TestWithRanks:
    def test_takes_the_rank_asked_for_and_the_last_where_there_are_fewer(self):
        database = database_of([1.0], [1.05])
        ranked = near_best(database, TARGET)
        best = database_of([1.0])
        for rank, number in ((0, 0), (1, 1), (2, 1)):
            chosen = with_ranks(best, ranked, {KEY: rank})
            assert numbers(chosen.get_all_tuning_records()) == [number]

    def test_keeps_what_has_no_rank(self):
        chosen = with_ranks(database_of([1.0]), {}, {KEY: 1})
        assert numbers(chosen.get_all_tuning_records()) == [0]


class TestFastestVariant:
    def test_takes_the_least_median_of_each_kernel(self):
        first = {1: [1.0, 9.0, 1.0], 2: [2.0, 2.0, 2.0]}
        second = {1: [2.0, 2.0, 2.0], 2: [1.0, 1.0, 9.0]}
        assert fastest_variant([first, second]) == {1: 0, 2: 1}

    def test_the_first_wins_ties(self):
        assert fastest_variant([{1: [1.0]}, {1: [1.0]}]) == {1: 0}

    def test_kernels_that_a_variant_lacks_are_left_out(self):
        assert fastest_variant([{1: [1.0], 2: [1.0]}, {1: [0.5]}]) == {1: 1}


@I.ir_module
class Doubled:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            result = R.add(x, x)
            R.output(result)
        return result


X = np.arange(32, dtype="float32").reshape(4, 8)


def measured(database, secs):
    """The model's kernel with records of some times in a database: each has another split."""
    (task,) = ModelKernels(Doubled, TARGET, database).tasks
    mod = task.dispatched[0]
    workload = database.commit_workload(mod)
    key, records = structural_hash(mod), []
    for number, each in enumerate(secs):
        schedule = Schedule(mod)
        loops = schedule.get_loops(schedule.get_sblock("T_add"))
        schedule.split(loops[-1], [2**number, None])
        records.append(TuningRecord(schedule.trace, workload, [each], TARGET))
        database.commit_tuning_record(records[-1])
    return key, records


def text(record):
    return str(record.trace)


class TestKeptChoice:
    def test_comes_back_for_as_long_as_it_is_near_the_best(self, tmp_path):
        database = MemoryDatabase()
        key, records = measured(database, [1.0, 1.05])
        keep_choice(tmp_path, {key: records[1]})
        assert {k: text(r) for k, r in kept_choice(tmp_path, database, TARGET).items()} == {
            key: text(records[1])
        }
        faster = MemoryDatabase()
        measured(faster, [0.5, 1.05])
        assert kept_choice(tmp_path, faster, TARGET) == {}

    def test_what_was_chosen_for_others_stays(self, tmp_path):
        database = MemoryDatabase()
        key, records = measured(database, [1.0, 1.05])
        keep_choice(tmp_path, {key: records[1]})
        keep_choice(tmp_path, {key + 1: records[0]})
        assert set(kept_choice(tmp_path, database, TARGET)) == {key}

    @pytest.mark.parametrize("content", [None, "{", "[]"])
    def test_without_a_file_of_ours_nothing_was_chosen(self, tmp_path, content):
        database = MemoryDatabase()
        measured(database, [1.0])
        if content is not None:
            (tmp_path / CHOICE).write_text(content)
        assert kept_choice(tmp_path, database, TARGET) == {}


class TestPreferred:
    def test_gives_way_to_what_is_measured_as_faster(self):
        database = MemoryDatabase()
        key, records = measured(database, [1.0, 1.05])
        kernels = ModelKernels(Doubled, TARGET, database)
        kernels.preferred = {key: records[1]}
        assert list(schedules_as_python(kernels).values()) == [text(records[1])]
        measured(database, [0.5])
        assert list(schedules_as_python(kernels).values()) == [text(records[0])]


class TestGoBack:
    """What the compiler refuses at the end has an earlier schedule, whatever was measured."""

    def test_takes_an_earlier_schedule_of_the_named_function(self):
        database = MemoryDatabase()
        key, records = measured(database, [2.0, 1.0])
        kernels = ModelKernels(Doubled, TARGET, database)
        assert list(schedules_as_python(kernels).values()) == [text(records[1])]
        task = str(kernels.tasks[0].task_name)
        assert kernels.go_back([task], {key: records[0]}) == [task]
        assert list(schedules_as_python(kernels).values()) == [text(records[0])]

    def test_leaves_a_task_without_an_earlier_schedule_as_it_is(self):
        database = MemoryDatabase()
        measured(database, [1.0])
        kernels = ModelKernels(Doubled, TARGET, database)
        kernels.go_back(["no function of it"], {})
        assert not list(kernels.schedules().get_all_tuning_records())
        np.testing.assert_array_equal(kernels.compile()([X])[0], 2 * X)


class TestFasterInside:
    def choose(self, monkeypatch, kernels, database, variant, secs):
        key = structural_hash(kernels.tasks[0].dispatched[0])
        monkeypatch.setattr(inside_model, "fastest_variant", lambda _: {key: variant})
        monkeypatch.setattr(inside_model, "time_in_alternation", lambda timers, rounds: secs)
        return faster_inside(kernels, kernels.compile(), database, TARGET, [X])

    def test_returns_the_schedules_of_the_executable(self, monkeypatch):
        database = MemoryDatabase()
        key, records = measured(database, [1.0, 1.05])
        kernels = ModelKernels(Doubled, TARGET, database)
        faster = {"last": [2.0], "chosen": [1.0]}
        compiled, taken = self.choose(monkeypatch, kernels, database, 1, faster)
        np.testing.assert_array_equal(compiled([X])[0], 2 * X)
        assert {k: text(r) for k, r in taken.items()} == {key: text(records[1])}

    def test_the_second_variant_of_a_kept_choice_is_the_best_by_its_own_time(self, monkeypatch):
        database = MemoryDatabase()
        key, records = measured(database, [1.0, 1.05])
        kernels = ModelKernels(Doubled, TARGET, database)
        kernels.preferred = {key: records[1]}
        faster = {"last": [2.0], "chosen": [1.0]}
        _, taken = self.choose(monkeypatch, kernels, database, 1, faster)
        assert text(taken[key]) == text(records[0])

    def test_is_none_where_it_is_slower(self, monkeypatch):
        database = MemoryDatabase()
        measured(database, [1.0, 1.05])
        kernels = ModelKernels(Doubled, TARGET, database)
        slower = {"last": [1.0], "chosen": [2.0]}
        assert self.choose(monkeypatch, kernels, database, 1, slower) is None


def test_the_next_run_without_trials_has_the_chosen_schedules(tmp_path, monkeypatch):
    # Where picks are measured, the schedules are told apart inside the model once more.
    monkeypatch.setattr(KernelTuner, "measure_picks", lambda *_: 0)
    directory = open_work_dir(tmp_path, TARGET, 1)
    database = JSONDatabase(work_dir=str(directory))
    key, records = measured(database, [1.0, 1.05])
    keep_choice(directory, {key: records[1]})
    result = tune(Doubled, target=TARGET, trials=0, work_dir=directory, progress=None)
    assert list(result.schedules.values()) == [text(records[1])]
    np.testing.assert_array_equal(result(X), 2 * X)


class TwoKernels(nn.Module):
    """A softmax and a sum."""

    def forward(self, image):
        return nn.op.sum(nn.op.softmax(image), axis=1)


@pytest.fixture(scope="module")
def picks(tmp_path_factory):
    """The directory that keeps the picks of all tests."""
    return tmp_path_factory.mktemp("picks")


def made(directory):
    """The kernels with picks, and what is measured."""
    mod, _ = TwoKernels().export_tvm({"forward": {"image": nn.spec.Tensor(ROWS.shape, "float32")}})
    mod["main"] = mod["forward"].with_attr("global_symbol", "main")
    del mod["forward"]
    database = MemoryDatabase()
    kernels = ModelKernels(mod, TARGET, database)
    rates = MachineRates(1e9, (1 << 20,), (1e9,))
    kernels.picks = pick_schedules(kernels.tasks, rates, warm_start=WarmStart(), work_dir=directory)
    return kernels, database


def scheduled(kernels):
    """The names of the tasks that have a schedule which changes something."""
    schedules = kernels.schedules()
    names = []
    for task in kernels.tasks:
        workload = schedules.commit_workload(task.dispatched[0])
        if any(record.trace.insts for record in schedules.get_top_k(workload, 1)):
            names.append(str(task.task_name))
    return names


def test_a_pick_that_is_left_leaves_the_kernel_as_it_is(picks):
    kernels, _ = made(picks)
    before = scheduled(kernels)
    assert len(before) == len(kernels.tasks) == 2
    assert kernels.leave([f"{before[0]}_prepacked"]) == [before[0]]
    assert scheduled(kernels) == [before[1]]
    # It may still be measured.
    assert not kernels.untouched and not kernels.lost
    shifted = np.exp(ROWS - ROWS.max(axis=1, keepdims=True))
    (out,) = kernels.compile()([ROWS])
    np.testing.assert_allclose(out, (shifted / shifted.sum(1, keepdims=True)).sum(1), rtol=1e-5)


def _measured(kernels, database, name):
    """Commit a measured schedule of a kernel; return its workload."""
    (task,) = (task for task in kernels.tasks if task.task_name == name)
    mod = task.dispatched[0]
    schedule = Schedule(mod)
    root = schedule.get_sblock("root")
    schedule.split(schedule.get_loops(schedule.get_child_blocks(root)[0])[-1], [2, None])
    workload = database.commit_workload(mod)
    database.commit_tuning_record(TuningRecord(schedule.trace, workload, [1e-6], TARGET))
    return mod


def test_a_measured_schedule_is_left_for_good(picks):
    kernels, database = made(picks)
    name = scheduled(kernels)[0]
    _measured(kernels, database, name)
    kernels.leave([name])
    assert name in kernels.untouched and name not in scheduled(kernels)
    assert kernels.lost == {name}


def test_a_kernel_that_compiles_too_slowly_goes_plain(picks):
    kernels, database = made(picks)
    names = scheduled(kernels)
    assert kernels.go_plain([names[0]], until=-math.inf) == ([], [names[0]])
    assert scheduled(kernels) == names[1:]
    assert kernels.go_plain([f"{name}_prepacked" for name in names]) == (names, [])
    assert scheduled(kernels) == names and not kernels.untouched and not kernels.lost
    for record in kernels.schedules().get_all_tuning_records():
        assert str(record.trace) == str(plain_schedule(record.workload.mod).trace)
    shifted = np.exp(ROWS - ROWS.max(axis=1, keepdims=True))
    (out,) = kernels.compile()([ROWS])
    np.testing.assert_allclose(out, (shifted / shifted.sum(1, keepdims=True)).sum(1), rtol=1e-5)


def test_a_plain_schedule_replaces_a_measured_one_that_compiles_too_slowly(picks):
    kernels, database = made(picks)
    name = scheduled(kernels)[0]
    mod = _measured(kernels, database, name)
    assert kernels.go_plain([name]) == ([name], [])
    (trace,) = (
        record.trace
        for record in kernels.schedules().get_all_tuning_records()
        if structural_hash(record.workload.mod) == structural_hash(mod)
    )
    assert str(trace) == str(plain_schedule(mod).trace)
    assert kernels.lost == {name} and not kernels.untouched
    kernels.leave([name])
    assert name in kernels.untouched and name not in scheduled(kernels)


def test_where_no_kernel_is_named_all_are_left(picks):
    kernels, _ = made(picks)
    assert len(kernels.leave(["packs_a_weight"])) == 2
    assert scheduled(kernels) == []
