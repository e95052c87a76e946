# SPDX-License-Identifier: Apache-2.0
"""The small parts of a model's tuning."""

import json
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from small_network import small_model

import tvm
from tvm import relax, te
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.testing.te_workload import matmul
from tvm.target import Target
from tvm_droplet_ms.frontends.imported import ModelIdentity, check_memory
from tvm_droplet_ms.frontends.relax import import_relax
from tvm_droplet_ms.measure.turns import time_in_alternation
from tvm_droplet_ms.model.bindings import weight_bytes
from tvm_droplet_ms.session.database import open_database
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.records import RECORDS, WORKLOADS, lost_records
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.session.work_dir import EXECUTABLE, RESULT, open_work_dir
from tvm_droplet_ms.tuning import tune
from tvm_droplet_ms.tuning.budget.stop_rules import StopRules
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.lowering import build, lower
from tvm_droplet_ms.tuning.held_model import hold_model, hold_shapes
from tvm_droplet_ms.tuning.run_context import RunObserver
from tvm_droplet_ms.tuning.written_records import WrittenRecords

TARGET = Target({"kind": "llvm", "num-cores": 1})

FIRST = ModelIdentity("first.onnx", "network 1", "weights 1")


class TestAlternation:
    def test_every_program_runs_once_a_round(self):
        calls = []

        def timer(name):
            return lambda: calls.append(name) or float(len(calls))

        secs = time_in_alternation({"a": timer("a"), "b": timer("b")}, rounds=2)
        assert "".join(calls) == "aabb" + "abab"
        assert secs == {"a": [5.0, 7.0], "b": [6.0, 8.0]}


class TestStopRequest:
    def test_is_due_at_the_deadline(self):
        now = 0.0
        stop = StopRequest(10.0, clock=lambda: now)
        assert not stop.is_due
        now = 10.0
        assert stop.is_due

    def test_without_a_deadline_a_share_of_the_time_has_none_either(self):
        stop = StopRequest()
        assert stop.earlier(0.5 * stop.left).left == float("inf")

    def test_an_interrupt_asks_for_the_end_and_a_second_one_interrupts(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            stop = StopRequest()
            with stop.on_interrupt():
                os.kill(os.getpid(), signal.SIGINT)
                assert stop.is_due
                with pytest.raises(KeyboardInterrupt):
                    os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        finally:
            signal.signal(signal.SIGINT, before)

    def test_an_ignored_interrupt_stays_ignored(self):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            stop = StopRequest()
            with stop.on_interrupt():
                os.kill(os.getpid(), signal.SIGINT)
            assert not stop.is_due
        finally:
            signal.signal(signal.SIGINT, before)


class TestTarget:
    def test_threads_are_the_targets_cores(self):
        target = cpu_target({"kind": "llvm", "num-cores": 8, "mcpu": "x86-64-v2"}, 3)
        assert int(target.attrs["num-cores"]) == 3
        assert str(target.attrs["mcpu"]) == "x86-64-v2"
        assert cpu_target("auto", 1).kind.name == "llvm"

    @pytest.mark.parametrize(
        ("target", "words"),
        [
            ("cuda", "of kind cuda: whole models are tuned for CPUs"),
            ("abacus", "'abacus' is not known to TVM"),
        ],
    )
    def test_what_is_no_cpu_is_refused(self, target, words):
        with pytest.raises(ModelError, match=words):
            cpu_target(target, 1)


class TestWorkDir:
    def test_another_run_of_the_same_settings_goes_on(self, tmp_path):
        first = open_work_dir(tmp_path / "new", TARGET, 1)
        assert open_work_dir(first, TARGET, 1) == first
        assert open_work_dir(None, TARGET, 1).is_dir()

    def test_lists_of_a_target_are_kept_as_lists(self, tmp_path):
        target = Target({"kind": "llvm", "mcpu": "znver4", "mattr": ["-avx512f"], "host": "llvm"})
        path = open_work_dir(tmp_path, target, 1) / "settings.json"
        settings = json.loads(path.read_text())
        kept = settings["target"]
        assert (kept["mattr"], kept["keys"], kept["host"]["keys"]) == (
            ["-avx512f"],
            ["cpu"],
            ["cpu"],
        )
        assert Target(kept).export() == target.export()
        # As an earlier version wrote them.
        kept |= {"mattr": '("-avx512f",)', "keys": '("cpu",)', "host": str(target.export()["host"])}
        path.write_text(json.dumps(settings))
        assert open_work_dir(tmp_path, target, 1) == tmp_path
        with pytest.raises(ModelError, match=r"was made for target .*\['-avx512f'\]"):
            open_work_dir(tmp_path, Target({"kind": "llvm", "mcpu": "znver4"}), 1)

    @pytest.mark.parametrize(
        ("cpu", "threads", "words"),
        [
            ({}, 2, "was made for threads 1, and this run has 2"),
            ({"mcpu": "znver4"}, 1, "was made for target .* and this run has .*znver4"),
        ],
    )
    def test_other_settings_are_refused(self, tmp_path, cpu, threads, words):
        open_work_dir(tmp_path, TARGET, 1)
        with pytest.raises(ModelError, match=words):
            open_work_dir(tmp_path, Target({"kind": "llvm", "num-cores": 1, **cpu}), threads)

    def test_what_cannot_be_used_is_refused(self, tmp_path):
        (tmp_path / "file").touch()
        for path, words in (
            ("/proc/none", "'/proc/none' cannot be used: .*another work_dir$"),
            (tmp_path / "file", "is a file: expected a directory"),
        ):
            with pytest.raises(ModelError, match=words):
                open_work_dir(path, TARGET, 1)

    def test_torn_settings_are_named(self, tmp_path):
        open_work_dir(tmp_path, TARGET, 1)
        path = tmp_path / "settings.json"
        path.write_text(json.dumps(json.loads(path.read_text()))[:-5])
        with pytest.raises(ModelError, match="settings.json is no settings file"):
            open_work_dir(tmp_path, TARGET, 1)


class TestMemory:
    @pytest.fixture
    def imported(self):
        weights = relax.const(np.ones((4, 4), "float32"))
        x = relax.Var("x", relax.TensorType((2, 4), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                once = builder.emit(relax.op.matmul(x, weights))
                twice = builder.emit_output(relax.op.matmul(once, weights))
            builder.emit_func_output(twice)
        return import_relax(builder.get())

    def test_a_weight_that_is_used_twice_counts_once(self, imported):
        assert weight_bytes(imported.mod["main"]) == 4 * 4 * 4

    def test_a_model_that_does_not_fit_is_refused(self, imported):
        weights = weight_bytes(imported.mod["main"])
        check_memory(weights, available=1000)
        with pytest.raises(ModelError, match="the model needs .* GB more memory"):
            check_memory(weights, available=100)


class TestCompiledModel:
    def test_a_scalar_input_keeps_its_rank(self):
        scalar = relax.Var("s", relax.TensorType((), "float32"))
        vector = relax.Var("x", relax.TensorType((4,), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [scalar, vector]):
            with builder.dataflow():
                result = builder.emit_output(relax.op.multiply(scalar, vector))
            builder.emit_func_output(result)
        executable = build(lower(builder.get(), TARGET), MemoryDatabase(), TARGET)
        (found,) = CompiledModel(executable)([np.float32(3.0), np.arange(4, dtype="float32")])
        assert found.tolist() == [0.0, 3.0, 6.0, 9.0]


def results(*times):
    """The results of a batch; None for a failure."""
    return [RunnerResult(None if one is None else [one], None) for one in times]


def test_patience_counts_trials_of_all_kernels_since_the_last_gain():
    a, b = 1, 2
    rules = StopRules(patience=5)
    for kernel, times in ((a, [3.0, 4.0]), (b, [None, None]), (b, [9.0, None])):
        rules.tell(kernel, results(*times))
    # The gain of b was its third of four trials: one of six came after it.
    assert not rules.reason
    rules.tell(a, results(3.0, 3.5, 5.0))
    assert not rules.reason
    rules.tell(a, results(3.0))
    assert rules.reason == "patience"
    rules.tell(a, results(2.0))
    assert not rules.reason


def test_what_earlier_runs_knew_is_no_gain():
    rules = StopRules(patience=3)
    rules.know(1, 2.0)
    rules.tell(1, results(3.0, 2.5, 2.0))
    assert rules.reason == "patience"


def test_the_watch_knows_earlier_runs(tmp_path):
    mod = tvm.IRModule({"main": te.create_prim_func(matmul(8, 8, 8))})
    database, target = MemoryDatabase(), Target({"kind": "llvm", "num-cores": 1})
    workload = database.commit_workload(mod)
    for secs in (2.0, 1e10):
        database.commit_tuning_record(TuningRecord(Schedule(mod).trace, workload, [secs], target))
    watch = RunObserver(tmp_path)
    # Asked again within a run: what was told first stays.
    for known in (database, MemoryDatabase()):
        watch.know_records([ExtractedTask("a", mod, target, [mod], 1)], known, target)
    (task,) = watch.tasks
    assert (task.name, task.known, task.done, task.best_secs) == ("a", 2, 2, 2.0)


def test_without_patience_it_is_never_spent():
    rules = StopRules()
    rules.tell(1, results(*[None] * 1000))
    assert not rules.reason


def test_another_network_is_refused_in_a_sentence_that_names_both(tmp_path):
    hold_model(tmp_path, FIRST)
    (tmp_path / EXECUTABLE).write_bytes(b"first")
    with pytest.raises(ModelError) as refusal:
        hold_model(tmp_path, ModelIdentity("second.onnx", "network 2", "weights 1"))
    for part in (repr(str(tmp_path)), "'first.onnx'", "'second.onnx'", "pass another work_dir"):
        assert part in str(refusal.value)
    with pytest.raises(ModelError, match="'first.onnx', with other operators"):
        hold_model(tmp_path, ModelIdentity("first.onnx", "network 2", "weights 1"))
    assert (tmp_path / EXECUTABLE).read_bytes() == b"first"
    assert hold_model(tmp_path, FIRST) == []


def test_the_directory_of_a_kernel_is_refused(tmp_path):
    (tmp_path / RESULT).write_text("{}")
    with pytest.raises(ModelError, match="holds the result of a kernel.*'first.onnx'"):
        hold_model(tmp_path, FIRST)


def test_a_directory_without_an_executable_has_nothing_to_lose(tmp_path):
    hold_model(tmp_path, FIRST)
    assert hold_model(tmp_path, ModelIdentity("second.onnx", "network 2", "")) == []


def test_other_weights_leave_the_executable_of_the_first_under_another_name(tmp_path):
    hold_model(tmp_path, FIRST)
    (tmp_path / EXECUTABLE).write_bytes(b"first")
    (note,) = hold_model(tmp_path, ModelIdentity("first.onnx", "network 1", "others"))
    assert "model-weights .so" in note
    assert (tmp_path / "model-weights .so").read_bytes() == b"first"
    assert not (tmp_path / EXECUTABLE).exists()


def test_other_shapes_leave_the_executable_of_the_first_under_another_name(tmp_path):
    short, long = [{"x": (1, 16)}], [{"x": (1, 16)}, {"x": (1, 64)}]
    hold_model(tmp_path, FIRST)
    assert hold_shapes(tmp_path, short) == []
    (tmp_path / EXECUTABLE).write_bytes(b"short")
    hold_model(tmp_path, FIRST)
    assert hold_shapes(tmp_path, short) == []
    assert (tmp_path / EXECUTABLE).read_bytes() == b"short"
    (note,) = hold_shapes(tmp_path, long)
    (aside,) = tmp_path.glob("model-*.so")
    assert aside.name in note and "{'x': [1, 16]}" in note
    assert aside.read_bytes() == b"short"
    assert not (tmp_path / EXECUTABLE).exists()


@pytest.mark.parametrize("text", ["", "[]", '{"name": "first.onnx"}'])
def test_a_damaged_file_does_not_keep_a_run_from_going_on(tmp_path, text):
    (tmp_path / EXECUTABLE).write_bytes(b"first")
    (tmp_path / "model.json").write_text(text)
    assert hold_model(tmp_path, FIRST) == []


def test_tune_refuses_before_anything_is_tuned(tmp_path):
    hold_model(tmp_path, FIRST)
    (tmp_path / EXECUTABLE).write_bytes(b"first")
    with pytest.raises(ModelError, match=r"holds the result of another model, 'first\.onnx'"):
        tune(small_model(), work_dir=tmp_path, trials=0, progress=None)
    assert (tmp_path / EXECUTABLE).read_bytes() == b"first"


def test_kernels_of_two_graphs_may_have_one_name(tmp_path):
    """The state and the patience of one are not those of the other."""
    watch = RunObserver(tmp_path, patience=3)
    target = Target({"kind": "llvm", "num-cores": 1})
    mods = [tvm.IRModule({"main": te.create_prim_func(matmul(n, n, n))}) for n in (8, 16)]
    for mod in mods:
        watch.know_records([ExtractedTask("a", mod, target, [mod], 1)], MemoryDatabase(), target)

    def measure(mod, secs):
        tasks = [SimpleNamespace(ctx=SimpleNamespace(task_name="a", mod=mod))]
        built, ran = BuilderResult("", None), RunnerResult([secs], None)
        scheduler = SimpleNamespace(tasks_=tasks)
        for callback in watch.callbacks:
            callback._inst.apply(scheduler, 0, [None], [built], [ran])

    measure(mods[0], 1e-6)
    for secs in (4e-5, 3e-5, 2e-5):
        measure(mods[1], secs)
    assert [task.best_secs for task in watch.tasks] == [1e-6, 2e-5]
    assert [task.done for task in watch.tasks] == [1, 3]
    assert not watch.rules.reason


def test_a_progress_that_cannot_be_written_ends_no_run(tmp_path, caplog):
    def broken(_line):
        raise BrokenPipeError("nobody reads")

    watch = RunObserver(tmp_path, progress=broken, patience=2)
    mod = tvm.IRModule({"main": te.create_prim_func(matmul(8, 8, 8))})
    tasks = [SimpleNamespace(ctx=SimpleNamespace(task_name="a", mod=mod))]
    scheduler = SimpleNamespace(tasks_=tasks)
    built, ran = BuilderResult("", None), RunnerResult([1e-6], None)
    for callback in watch.callbacks * 3:
        callback._inst.apply(scheduler, 0, [None], [built], [ran])
    assert watch.rules.reason == "patience"
    watch.close()
    assert caplog.messages[-1] == "the end of the progress is not shown: nobody reads"


def test_records_that_do_not_reach_their_file_end_a_run(tmp_path):
    database = open_database(tmp_path)
    written = WrittenRecords(tmp_path, database)
    mod = tvm.IRModule({"main": te.create_prim_func(matmul(8, 8, 8))})
    target = Target({"kind": "llvm", "num-cores": 1})
    record = TuningRecord(Schedule(mod).trace, database.commit_workload(mod), [1.0], target)
    result = RunnerResult([1.0], None)
    database.commit_tuning_record(record)
    written._inst.apply(None, 0, [None], [None], [result])
    written.check()
    written._inst.apply(None, 0, [None], [None], [result])
    with pytest.raises(ModelError, match="1 of 2 records could not be written to .* make room"):
        written.check()
    in_memory = WrittenRecords(tmp_path, MemoryDatabase())
    in_memory._inst.apply(None, 0, [None], [None], [result])
    in_memory.check()


def test_a_workload_that_is_not_written_is_a_loss(tmp_path):
    (tmp_path / RECORDS).write_text('[0, ["trace", [1.0]]]\n[1, ["trace", [1.0]]]\n')
    (tmp_path / WORKLOADS).write_text("a workload\nanother\n")
    assert lost_records(tmp_path, 2) == ""
    (tmp_path / WORKLOADS).write_text("a workload\nano")
    assert lost_records(tmp_path, 2).startswith("the workloads of the last records could not")
