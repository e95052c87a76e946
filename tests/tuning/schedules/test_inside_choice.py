# SPDX-License-Identifier: Apache-2.0
"""Schedules that were chosen inside the model are shown, and outlast the run."""

import numpy as np
import pytest
from tvm_ffi import structural_hash

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord
from tvm.script import ir as I
from tvm.script import relax as R
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.session.work_dir import open_work_dir
from tvm_droplet_ms.tuning import tune
from tvm_droplet_ms.tuning.choices import inside_model
from tvm_droplet_ms.tuning.choices.inside_model import faster_inside
from tvm_droplet_ms.tuning.kernel_table import schedules_as_python
from tvm_droplet_ms.tuning.kernel_tuner import KernelTuner
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.schedules.inside_choice import CHOICE, keep_choice, kept_choice


@I.ir_module
class Doubled:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            result = R.add(x, x)
            R.output(result)
        return result


TARGET = cpu_target("auto", 1)
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
