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
"""WarmBuilder: what it builds, how it fails, and what is left behind."""

import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tvm_ffi

import tvm
from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import Schedule, TensorIntrin
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.script import tirx as T
from tvm.target import Target
from tvm.tirx import PrimFunc, Var
from tvm_droplet_ms.measure import WarmBuilder
from tvm_droplet_ms.measure.build import build_scheduled, export_shared_library
from tvm_droplet_ms.measure.pool import TaskFailed

N = 16
LLVM = Target("llvm")


@T.prim_func(s_tir=True)
def multiply_add_description(
    a: T.Buffer((1,), "float32", offset_factor=1),
    b: T.Buffer((N,), "float32", offset_factor=1),
    c: T.Buffer((N,), "float32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(c[0:N], a[0:1], b[0:N])
        T.writes(c[0:N])
        for i in T.serial(0, N):
            with T.sblock("update"):
                vi = T.axis.remap("S", [i])
                c[vi] = c[vi] + a[0] * b[vi]


@T.prim_func(s_tir=True)
def multiply_add_vector(
    a: T.Buffer((1,), "float32", offset_factor=1),
    b: T.Buffer((N,), "float32", offset_factor=1),
    c: T.Buffer((N,), "float32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(c[0:N], a[0:1], b[0:N])
        T.writes(c[0:N])
        c[T.ramp(T.int32(0), 1, N)] = c.vload([0], f"float32x{N}") + T.broadcast(a[0], N) * b.vload(
            [0], f"float32x{N}"
        )


def matmul(scale: int = 1) -> IRModule:
    """A matrix product; ``scale`` is told from the name of its function."""
    func = te.create_prim_func(te_workload.matmul(N, N, N))
    return IRModule({"main": func.with_attr("scale", scale)})


def scale_of(mod: IRModule) -> int:
    return int(mod["main"].attrs["scale"])


def inputs(*scales: int) -> list[BuilderInput]:
    return [BuilderInput(matmul(scale), LLVM) for scale in scales]


def assert_multiplies(result: BuilderResult) -> None:
    assert result.error_msg is None
    module = tvm.runtime.load_module(str(result.artifact_path))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N), dtype=np.float32) for _ in range(2))
    out = tvm.runtime.tensor(np.zeros((N, N), dtype=np.float32))
    module["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)


@pytest.fixture
def make_builder(tmp_path, monkeypatch):
    """Makes builders whose files are in a directory of their own; nothing may be left there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    builders = []

    def make(**options: Any) -> WarmBuilder:
        builders.append(WarmBuilder(**{"max_workers": 1, **options}))
        return builders[-1]

    yield make
    for builder in builders:
        builder.close()
    assert list(tmp_path.iterdir()) == []
    assert [
        child for child in psutil.Process().children() if "measure.server" in _line(child)
    ] == []


def _line(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


# ---- What is built ----


@pytest.mark.parametrize(
    "f_export", [None, export_shared_library, "s_tir.meta_schedule.builder.default_export"]
)
def test_builds_compute_what_they_should_and_import_no_needless_intrinsics(make_builder, f_export):
    def build_and_check(mod: IRModule, target: Target, params: Any) -> Any:
        module = build_scheduled(mod, target, params)
        assert "tvm.s_tir.tensor_intrin" not in sys.modules
        return module

    results = make_builder(f_build=build_and_check, f_export=f_export).build(inputs(1, 2))
    for result in results:
        assert_multiplies(result)
    folders = [Path(str(result.artifact_path)).parent for result in results]
    # What TVM's RemoveBuildArtifact does must leave the other candidates alone.
    shutil.rmtree(folders[0])
    assert_multiplies(results[1])


def test_a_tensorized_schedule_builds_where_its_intrinsic_is_unknown(make_builder):
    name = "test_warm_builder_multiply_add"
    TensorIntrin.register(name, multiply_add_description, multiply_add_vector, override=True)
    schedule = Schedule(matmul())
    block = schedule.get_sblock("C")
    row, column, reduction = schedule.get_loops(block)
    schedule.reorder(row, reduction, column)
    schedule.decompose_reduction(block, reduction)
    schedule.tensorize(column, name)
    assert "broadcast" in schedule.mod.script().lower()
    (result,) = make_builder().build([BuilderInput(schedule.mod, LLVM)])
    assert_multiplies(result)


def test_order_is_kept_and_parameters_arrive(make_builder):
    def build(mod: IRModule, target: Target, params: Any) -> Any:
        time.sleep(0.2 if scale_of(mod) == 0 else 0.0)
        assert params["weight"].numpy().tolist() == [1.0, 2.0]
        assert os.environ["TMPDIR"] == tempfile.gettempdir()
        Path(tempfile.gettempdir(), "scale").write_text(str(scale_of(mod)))
        return build_scheduled(mod, target)

    params = {"weight": tvm.runtime.tensor(np.array([1.0, 2.0], "float32"))}
    batch = [BuilderInput(matmul(scale), LLVM, params) for scale in range(6)]
    results = make_builder(max_workers=2, f_build=build).build(batch)
    found = [Path(str(r.artifact_path)).with_name("scale").read_text() for r in results]
    assert found == [str(scale) for scale in range(6)]


def test_a_cuda_module_is_built_with_its_host_code(make_builder):
    def no_compiler_needed() -> None:
        tvm_ffi.register_global_func(
            "tvm_callback_cuda_compile", lambda code, target: "// ptx", override=True
        )

    schedule = Schedule(matmul())
    i, j, _ = schedule.get_loops(schedule.get_sblock("C"))
    schedule.bind(i, "blockIdx.x")
    schedule.bind(j, "threadIdx.x")
    target = Target({"kind": "cuda", "arch": "sm_70"}, host="llvm")
    builder = make_builder(initializer=no_compiler_needed)
    (result,) = builder.build([BuilderInput(schedule.mod, target)])
    assert result.error_msg is None
    assert os.path.getsize(str(result.artifact_path)) > 0


# ---- How builds fail ----


def _hang() -> None:
    time.sleep(1000)


def _hang_in_c() -> None:
    ctypes.PyDLL(None).pause()  # Holds the interpreter's lock.


def _eat_memory() -> None:
    kept = []
    while True:
        kept.append(bytearray(64 << 20))


FAULTS = {
    "error": (lambda: 1 / 0, 20.0, "error", "ZeroDivisionError"),
    "exit": (lambda: sys.exit(3), 20.0, "error", "SystemExit"),
    "hang": (_hang, 2.0, "timeout", "2 s"),
    "hang in C": (_hang_in_c, 2.0, "timeout", "2 s"),
    "segfault": (lambda: ctypes.string_at(0), 20.0, "crash", "SIGSEGV"),
    "memory": (_eat_memory, 20.0, "error", "limit of 2048 MiB"),
    "killed": (lambda: os.kill(os.getpid(), 9), 20.0, "crash", "SIGKILL"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_one_candidate(make_builder, fault):
    function, limit, kind, words = FAULTS[fault]

    def build(mod: IRModule, target: Target, params: Any) -> Any:
        if scale_of(mod) == 2:
            function()
        return build_scheduled(mod, target)

    options = {"max_workers": 2, "timeout_sec": limit, "memory_limit_mb": 2048}
    builder = make_builder(f_build=build, **options)
    start = time.monotonic()
    results = builder.build(inputs(0, 1, 2, 3, 4))
    assert time.monotonic() - start < 15.0
    assert [result.error_msg is None for result in results] == [True, True, False, True, True]
    message = str(results[2].error_msg)
    assert message.startswith("WarmBuilder: ") and words in message
    assert builder.stats.failures == {kind: 1} and builder.stats.builds == 5
    folders = os.listdir(Path(str(results[0].artifact_path)).parent.parent)
    assert len(folders) == 4
    for result in (results[0], results[4]):
        assert_multiplies(result)


def test_a_module_that_cannot_be_built_is_a_worded_result(make_builder):
    free = Var("free_variable", "int32")
    body = tvm.tirx.Evaluate(tvm.tirx.call_extern("int32", "function", free))
    func = PrimFunc([], body).with_attr({"global_symbol": "main", "s_tir": True})
    (result,) = make_builder().build([BuilderInput(IRModule({"main": func}), LLVM)])
    assert result.artifact_path is None
    assert "free_variable" in str(result.error_msg)


def test_a_full_disk_is_a_worded_result(make_builder):
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    (result,) = make_builder(initializer=no_room).build(inputs(1))
    assert "the temporary directory is full" in str(result.error_msg)


def test_a_directory_that_takes_no_folder_is_a_worded_result(make_builder, monkeypatch):
    builder = make_builder()

    def refuse(*args: Any, **kwargs: Any) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", refuse)
        (result,) = builder.build(inputs(1))
    assert "No space left on device" in str(result.error_msg)
    assert builder.stats.failures == {"error": 1}


def test_the_time_limit_is_each_builds_own(make_builder):
    def build(mod: IRModule, target: Target, params: Any) -> Any:
        time.sleep(0.6)
        return build_scheduled(mod, target)

    results = make_builder(f_build=build, timeout_sec=1.5).build(inputs(0, 1, 2, 3))
    assert [result.error_msg for result in results] == [None] * 4


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"f_build": lambda *args, lock=threading.Lock(): None}, TypeError, "cannot be sent"),
        ({"f_build": "no.such.function"}, TaskFailed, "no.such.function"),
        ({"initializer": lambda: 1 / 0}, TaskFailed, "ZeroDivisionError"),
        ({"timeout_sec": 0}, ValueError, "timeout_sec = 0"),
        ({"max_workers": 0}, ValueError, "workers = 0"),
    ],
)
def test_what_cannot_work_is_refused_at_once(make_builder, options, error, words):
    with pytest.raises(error, match=words):
        make_builder(**options)


# ---- How long workers live ----


def pid_of_each(builder: Any, count: int) -> list[str]:
    results = builder.build(inputs(*range(count)))
    return [Path(str(r.artifact_path)).with_name("pid").read_text() for r in results]


def leave_pid(mod: IRModule, target: Target, params: Any) -> Any:
    Path(tempfile.gettempdir(), "pid").write_text(str(os.getpid()))
    return build_scheduled(mod, target)


def test_workers_live_across_batches_for_so_many_builds(make_builder):
    builder = make_builder(f_build=leave_pid, max_builds=4)
    pids = pid_of_each(builder, 3) + pid_of_each(builder, 3)
    assert len(set(pids[:4])) == 1 and len(set(pids[4:])) == 1 and pids[3] != pids[4]


@pytest.mark.slow
def test_memory_is_flat_over_thousands_of_builds(make_builder):
    builder = make_builder(max_workers=2, max_growth_mb=64)

    def memory() -> float:
        (server,) = (c for c in psutil.Process().children() if "measure.server" in _line(c))
        workers = [child.memory_full_info().uss for child in server.children()]
        return (sum(workers) + server.memory_full_info().uss) / (1 << 20)

    used = []
    for _ in range(20):
        for result in builder.build(inputs(*range(100))):
            shutil.rmtree(Path(str(result.artifact_path)).parent)
        used.append(memory())
    assert max(used[2:]) - used[1] < 2 * 64 + 32, used


def test_a_program_from_standard_input_runs_once_and_recycles(tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
print("top level")
from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms.measure import WarmBuilder
mod = IRModule({{"main": te.create_prim_func(te_workload.matmul(8, 8, 8))}})
results = WarmBuilder(max_workers=2, max_builds=1).build([BuilderInput(mod, Target("llvm"))] * 4)
print([result.error_msg for result in results])
"""
    done = subprocess.run(
        [sys.executable, "-"],
        input=program,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == ["top level", "[None, None, None, None]"], done.stderr
    assert list(tmp_path.iterdir()) == []


def test_tuning_leaves_records_and_no_artefact(make_builder, tmp_path_factory):
    builder = make_builder(max_workers=2)
    database = ms.tune_tir(
        matmul(),
        Target({"kind": "llvm", "num-cores": 1}),
        str(tmp_path_factory.mktemp("work")),
        max_trials_global=8,
        num_trials_per_iter=4,
        builder=builder,
        strategy="replay-trace",
        cost_model="random",
    )
    assert len(database) == 8
    assert os.listdir(builder._pool.directory) == []
