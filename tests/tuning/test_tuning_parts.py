# SPDX-License-Identifier: Apache-2.0
"""The small parts of a model's tuning."""

import json
import os
import signal

import numpy as np
import pytest

from tvm import relax
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.session.work_dir import open_work_dir
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.lowering import build, lower
from tvm_droplet_ms.tuning.frontends.memory import check_memory, weight_bytes
from tvm_droplet_ms.tuning.frontends.relax import import_relax
from tvm_droplet_ms.tuning.measuring.alternation import time_in_alternation

TARGET = Target({"kind": "llvm", "num-cores": 1})


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
        target = cpu_target({"kind": "llvm", "num-cores": 8, "mcpu": "znver4"}, 3)
        assert int(target.attrs["num-cores"]) == 3
        assert str(target.attrs["mcpu"]) == "znver4"

    def test_auto_is_this_machine(self):
        assert cpu_target("auto", 1).kind.name == "llvm"

    def test_a_gpu_is_refused(self):
        with pytest.raises(ModelError, match="of kind cuda: whole models are tuned for CPUs"):
            cpu_target("cuda", 1)

    def test_an_unknown_target_is_named(self):
        with pytest.raises(ModelError, match="'abacus' is not known to TVM"):
            cpu_target("abacus", 1)


class TestWorkDir:
    def test_another_run_of_the_same_settings_goes_on(self, tmp_path):
        first = open_work_dir(tmp_path / "new", TARGET, 1)
        assert open_work_dir(first, TARGET, 1) == first

    def test_another_thread_count_is_refused(self, tmp_path):
        open_work_dir(tmp_path, TARGET, 1)
        with pytest.raises(ModelError, match="was made for threads 1, and this run has 2"):
            open_work_dir(tmp_path, TARGET, 2)

    def test_another_target_is_refused(self, tmp_path):
        open_work_dir(tmp_path, TARGET, 1)
        other = Target({"kind": "llvm", "num-cores": 1, "mcpu": "znver4"})
        with pytest.raises(ModelError, match="was made for target .* and this run has .*znver4"):
            open_work_dir(tmp_path, other, 1)

    def test_one_that_cannot_be_made_is_refused(self):
        with pytest.raises(ModelError, match="'/proc/none' cannot be used: .*another work_dir$"):
            open_work_dir("/proc/none", TARGET, 1)

    def test_a_file_is_refused(self, tmp_path):
        path = tmp_path / "file"
        path.touch()
        with pytest.raises(ModelError, match="is a file: expected a directory"):
            open_work_dir(path, TARGET, 1)

    def test_torn_settings_are_named(self, tmp_path):
        open_work_dir(tmp_path, TARGET, 1)
        path = tmp_path / "settings.json"
        path.write_text(json.dumps(json.loads(path.read_text()))[:-5])
        with pytest.raises(ModelError, match="settings.json is no settings file"):
            open_work_dir(tmp_path, TARGET, 1)

    def test_none_makes_a_directory(self):
        directory = open_work_dir(None, TARGET, 1)
        assert directory.is_dir()


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
        assert weight_bytes(imported) == 4 * 4 * 4

    def test_a_model_that_does_not_fit_is_refused(self, imported):
        check_memory(imported, available=1000)
        with pytest.raises(ModelError, match="the model needs .* GB more memory"):
            check_memory(imported, available=100)


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
