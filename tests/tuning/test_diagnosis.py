# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""What changes the outputs is found, and left out."""

import numpy as np
import pytest

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.target import Target
from tvm_droplet_ms.tuning import model_tuning, tune
from tvm_droplet_ms.tuning.diagnosis import first_wrong_pass, kernel_deviation

TARGET = Target({"kind": "llvm", "num-cores": 1})


@I.ir_module
class Doubled:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            twice = R.multiply(x, R.const(2.0, "float32"))
            result = R.nn.relu(twice)
            R.output(result)
        return result


@tvm.transform.module_pass(opt_level=0, name="Harmless")
def harmless(mod, _context):
    return mod


@tvm.transform.module_pass(opt_level=0, name="Harmful")
def harmful(mod, _context):
    return relax.transform.BindParams("main", {})(
        IRModule({"main": Tripled["main"]}, attrs=mod.attrs)
    )


@I.ir_module
class Tripled:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            thrice = R.multiply(x, R.const(3.0, "float32"))
            result = R.nn.relu(thrice)
            R.output(result)
        return result


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((2, 4)).astype("float32")


def run(mod, x):
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return [machine["main"](tvm.runtime.tensor(x)).numpy()]


class TestFirstWrongPass:
    def test_is_named(self, x):
        passes = [("a", harmless), ("b", harmful), ("c", harmless)]
        expected = [np.maximum(2 * x, 0)]
        assert first_wrong_pass(Doubled, passes, lambda m: run(m, x), expected, 1e-4) == "b"

    def test_is_none_where_all_are_right(self, x):
        expected = [np.maximum(2 * x, 0)]
        passes = [("a", harmless)]
        assert first_wrong_pass(Doubled, passes, lambda m: run(m, x), expected, 1e-4) is None


@T.prim_func(s_tir=True)
def scaled(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for i in range(16):
        with T.sblock("b"):
            v = T.axis.spatial(16, i)
            b[v] = a[v] * T.float32(2)


class TestKernelDeviation:
    def test_a_schedule_that_keeps_the_outputs_does_not_deviate(self):
        mod = IRModule({"main": scaled})
        schedule = Schedule(mod)
        schedule.split(schedule.get_loops(schedule.get_sblock("b"))[0], [4, 4])
        workload = MemoryDatabase().commit_workload(mod)
        record = TuningRecord(schedule.trace, workload, [1.0], TARGET)
        assert kernel_deviation(record, TARGET) == 0.0


class TestTune:
    def test_a_pass_that_changes_the_outputs_is_left_out_and_named(self, monkeypatch, tmp_path, x):
        passes = [("Harmless", harmless), ("Harmful", harmful)]
        monkeypatch.setattr(model_tuning, "graph_passes", lambda: passes)
        result = tune(Doubled, trials=0, work_dir=tmp_path)
        np.testing.assert_allclose(result(x), np.maximum(2 * x, 0), rtol=1e-6)
        assert result.notes == ("the graph pass Harmful changed the outputs and was left out",)

    def test_a_kernel_whose_schedule_changes_the_outputs_is_left_untouched(
        self, monkeypatch, tmp_path, x
    ):
        true_build = model_tuning.ModelKernels.compile

        def compile_wrongly(kernels, schedules=None):
            # Compiles another model for as long as the kernel has a schedule.
            if not kernels.untouched:
                kernels = model_tuning.ModelKernels(Tripled, TARGET, MemoryDatabase())
            return true_build(kernels, schedules)

        monkeypatch.setattr(model_tuning.ModelKernels, "compile", compile_wrongly)
        monkeypatch.setattr("tvm_droplet_ms.tuning.model_kernels.kernel_deviation", lambda *_: 1.0)
        result = tune(Doubled, trials=0, work_dir=tmp_path)
        np.testing.assert_allclose(result(x), np.maximum(2 * x, 0), rtol=1e-6)
        assert "gave other outputs; these are left untouched" in result.notes[0]
        assert [row.schedule for row in result.kernels] == ["untouched"]
