# SPDX-License-Identifier: Apache-2.0
"""The builder: its artifacts, and every way in which a build can fail."""

import contextlib
import errno
import gc
import math
import os
import re
import resource
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import psutil
import pytest
import tvm_ffi
from building import add_constant, build_or_fail, constant_of, with_fault
from measuring import PATIENCE_SECS, Surroundings, eventually

import tvm
from tvm import rpc, te
from tvm.ir import IRModule
from tvm.s_tir import Schedule, TensorIntrin
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.s_tir.meta_schedule.utils import remove_build_dir
from tvm.script import tirx as T
from tvm.target import Target
from tvm.tirx import PrimFunc, Var
from tvm_droplet_ms.measure import WarmBuilder, is_machinery_failure
from tvm_droplet_ms.measure.failures import failure_at

LLVM = Target("llvm")
CUDA = Target({"kind": "cuda", "arch": "sm_80"})
N = 16


@pytest.fixture
def make_builder(surroundings):
    """Makes builders that are closed also when the test fails."""
    with contextlib.ExitStack() as stack:
        yield lambda **arguments: stack.enter_context(contextlib.closing(WarmBuilder(**arguments)))


@pytest.fixture(scope="module")
def shared(tmp_path_factory, warm_servers):
    """A builder with nothing of its own, which many tests use and none may break."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        surroundings = Surroundings(tmp_path_factory.mktemp("builder"), monkeypatch, warm_servers)
        with contextlib.closing(WarmBuilder(max_workers=2)) as builder:
            yield builder
        surroundings.assert_nothing_is_left()


def build(builder, *mods, target=LLVM, params=None):
    return builder.build([BuilderInput(mod, target, params) for mod in mods])


def artifact_of(result) -> str:
    assert result.error_msg is None, result.error_msg
    return str(result.artifact_path)


def error_of(result) -> str:
    assert result.artifact_path is None and result.error_msg is not None
    return str(result.error_msg)


def matmul(name: str = "main") -> IRModule:
    func = te.create_prim_func(te_workload.matmul(N, N, N))
    return IRModule({name: func.with_attr("global_symbol", name)})


def assert_multiplies(module) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N), dtype=np.float32) for _ in range(2))
    out = tvm.runtime.tensor(np.zeros((N, N), dtype=np.float32))
    module["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)


# Artifacts.


def test_build_for_cpus_imports_no_tensor_intrinsics(make_builder):
    def build_and_look(mod, target, params):
        module = build_or_fail(mod, target, params)
        assert "tvm.s_tir.tensor_intrin" not in sys.modules
        return module

    builder = make_builder(max_workers=1, f_build=build_and_look)
    assert_multiplies(tvm.runtime.load_module(artifact_of(build(builder, matmul())[0])))


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


def test_tensorized_schedule_builds_where_its_intrinsic_is_unknown(shared):
    name = "test_multiply_add"
    TensorIntrin.register(name, multiply_add_description, multiply_add_vector, override=True)
    schedule = Schedule(matmul())
    block = schedule.get_sblock("C")
    row, column, reduction = schedule.get_loops(block)
    schedule.reorder(row, reduction, column)
    schedule.decompose_reduction(block, reduction)
    schedule.tensorize(column, name)
    assert "broadcast" in schedule.mod.script().lower()
    assert_multiplies(tvm.runtime.load_module(artifact_of(build(shared, schedule.mod)[0])))


def test_results_are_in_the_order_of_the_inputs(make_builder):
    def build_slowly_at_first(mod, target, params):
        if mod.attrs is not None and "slow" in mod.attrs:
            time.sleep(1)
        return build_or_fail(mod, target, params)

    builder = make_builder(max_workers=2, f_build=build_slowly_at_first)
    mods = [add_constant(0.0).with_attr("slow", True), *(add_constant(i) for i in range(1, 8))]
    assert [constant_of(artifact_of(result)) for result in build(builder, *mods)] == list(range(8))


def test_what_would_be_built_after_the_end_fails_as_not_begun(make_builder):
    builder = make_builder(max_workers=1, f_build=build_or_fail)
    builder.end_by(time.monotonic())
    (late,) = build(builder, add_constant(1.0))
    assert late.artifact_path is None and is_machinery_failure(late.error_msg)
    assert "the time is over" in late.error_msg
    builder.end_by(math.inf)
    assert constant_of(artifact_of(build(builder, add_constant(2.0))[0])) == 2


def test_parameters_reach_build_function(make_builder):
    sent = {"weight": tvm.runtime.tensor(np.arange(6, dtype="float32").reshape(2, 3))}

    def build_with_params(mod, target, params):
        (name,) = params
        assert name == "weight" and params[name].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        return build_or_fail(mod, target, None)

    builder = make_builder(max_workers=1, f_build=build_with_params)
    results = build(builder, add_constant(1.0), params=sent)
    assert constant_of(artifact_of(results[0])) == 1.0
    assert "TypeError" in error_of(build(builder, add_constant(1.0))[0])


def test_stats_count_builds_failures_and_seconds(make_builder):
    builder = make_builder(max_workers=2, f_build=build_or_fail)
    start = time.perf_counter()
    build(builder, add_constant(1.0), with_fault(add_constant(2.0), measuring.raise_error))
    build(builder, add_constant(3.0))
    elapsed = time.perf_counter() - start
    stats = builder.stats
    assert stats.builds == 3
    assert stats.failures == {"error": 1}
    assert 0 < stats.build_secs + stats.export_secs < 2 * elapsed
    assert min(stats.build_secs, stats.export_secs) > 0
    assert stats.build_secs / 2 < stats.wall_secs <= elapsed


# Folders.


def test_every_candidate_has_its_own_folder(shared):
    paths = [artifact_of(result) for result in build(shared, *map(add_constant, range(3)))]
    remove_build_dir(paths[1])
    assert not os.path.exists(paths[1])
    assert [constant_of(paths[0]), constant_of(paths[2])] == [0, 2]


@pytest.mark.parametrize("name", ["f_export of TVM", "f_export with a folder of its own"])
def test_export_functions_of_tvm_and_of_the_user(make_builder, name):
    def export_as_text(module) -> str:
        path = Path(tempfile.mkdtemp(), "kernel.ll")
        path.write_text(module.inspect_source("ll"))
        return str(path)

    of_tvm = name == "f_export of TVM"
    f_export = "s_tir.meta_schedule.builder.default_export" if of_tvm else export_as_text
    builder = make_builder(max_workers=2, f_export=f_export)
    paths = [artifact_of(result) for result in build(builder, *map(add_constant, range(3)))]
    remove_build_dir(paths[0])
    if of_tvm:
        assert [constant_of(path) for path in paths[1:]] == [1, 2]
    else:
        assert all("fadd" in Path(path).read_text() for path in paths[1:])


def test_artifact_for_another_machine(make_builder):
    """For example, an export function sends the artifact to a device."""
    builder = make_builder(max_workers=1, f_export=lambda _: "/device/kernels/7")
    assert artifact_of(build(builder, add_constant(1.0))[0]) == "/device/kernels/7"
    assert not os.path.exists("/device")


def test_artifact_loads_over_rpc(shared, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # For the server.
    path = artifact_of(build(shared, matmul())[0])
    server = rpc.Server("127.0.0.1", no_fork=True)
    try:
        session = rpc.connect("127.0.0.1", server.port)
        session.upload(path)
        module = session.load_module(os.path.basename(path))
        device = session.cpu(0)
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal((N, N), dtype=np.float32) for _ in range(2))
        out = tvm.runtime.empty((N, N), "float32", device)
        module["main"](tvm.runtime.tensor(a, device), tvm.runtime.tensor(b, device), out)
        np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)
    finally:
        server.terminate()


# CUDA.

MARK = "// seen by this test"


def compile_without_toolkit() -> None:
    """TVM compiles kernels where it finds a CUDA driver, and keeps their source elsewhere."""

    @tvm.register_global_func("tvm_callback_cuda_postproc", override=True)
    def mark(code, *_):
        if "broken" in code:
            raise RuntimeError("no such architecture")
        return code + MARK

    @tvm.register_global_func("tvm_callback_cuda_compile", override=True)
    def compile_cuda(code, *_):
        return b"//" + str(code).encode()


def matmul_of_threads(name: str) -> IRModule:
    schedule = Schedule(matmul(name))
    schedule.work_on(name)
    i, j, _ = schedule.get_loops(schedule.get_sblock("C"))
    schedule.bind(i, "blockIdx.x")
    schedule.bind(j, "threadIdx.x")
    return schedule.mod


def contents(artifact: str) -> bytes:
    with tarfile.open(artifact) as tar:
        files = (tar.extractfile(member) for member in tar.getmembers())
        return b"".join(file.read() for file in files if file is not None)


@T.prim_func(s_tir=True)
def accumulate_in_fragments(out: T.Buffer((16, 8), "float16")) -> None:
    """A matrix in the registers of a tensor core's fragment (mma.m16n8k8)."""
    T.func_attr({"global_symbol": "main"})
    for _block in T.thread_binding(1, "blockIdx.x"):
        for _thread in T.thread_binding(32, "threadIdx.x"):
            with T.sblock("root"):
                fragment = T.sblock_alloc_buffer((16, 8), "float16", scope="m16n8k8.matrixC")
                for i, j in T.grid(16, 8):
                    with T.sblock("fill"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        fragment[vi, vj] = T.float16(1)
                for i, j in T.grid(16, 8):
                    with T.sblock("store"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        out[vi, vj] = fragment[vi, vj]


def test_cuda_modules_are_built(make_builder):
    # The import of CUDA's tensor intrinsics takes 12 s on an idle machine.
    builder = make_builder(max_workers=1, timeout_sec=300, initializer=compile_without_toolkit)
    # The layout of fragments is a function that TVM registers with CUDA's tensor intrinsics.
    fragments = IRModule({"main": accumulate_in_fragments})
    good, broken = map(matmul_of_threads, ("good", "broken"))
    *built, failed = build(builder, good, fragments, broken, target=CUDA)
    for result in built:
        assert MARK.encode() in contents(artifact_of(result))
    assert "no such architecture" in error_of(failed)
    assert builder.stats.failures == {"error": 1}


# Failures.


def test_invalid_module_fails_only_its_candidate(shared):
    free = Var("free_variable", "int32")
    body = tvm.tirx.Evaluate(tvm.tirx.call_extern("int32", "function", free))
    func = PrimFunc([], body).with_attr({"global_symbol": "main", "s_tir": True})
    before = shared.stats.failures["error"]
    bad, good = build(shared, IRModule({"main": func}), add_constant(1.0))
    assert "free_variable" in error_of(bad)
    assert constant_of(artifact_of(good)) == 1.0
    assert shared.stats.failures["error"] == before + 1


# Functions, the kind of failure that they are, and the words of it.
FAULTS = [
    (measuring.raise_error, "error", "ValueError: the fault of this test"),
    (measuring.leave, "error", "SystemExit: the fault of this test"),
    (measuring.segfault, "crash", "ended by SIGSEGV"),
    (measuring.hang_in_c, "timeout", "killed after 3 s"),
    (measuring.eat_memory, "error", "out of memory within the worker's limit of 1024 MiB"),
    (measuring.eat_memory_in_c, "crash", "SIGSEGV, perhaps at the limit of 1024 MiB"),
    (measuring.leave_at_once, "crash", "ended with status 3"),
    (measuring.hang_with_children, "timeout", "killed after 3 s"),
]


def test_faults_among_good_candidates(surroundings, make_builder):
    builder = make_builder(
        max_workers=2, timeout_sec=3, memory_limit_mb=1024, f_build=build_or_fail
    )
    mods = [add_constant(0.0)]
    for i, (fault, _, _) in enumerate(FAULTS, start=1):
        mods += [with_fault(add_constant(-i), fault), add_constant(i)]
    results = build(builder, *mods)

    for (_, _, words), result in zip(FAULTS, results[1::2], strict=True):
        error = error_of(result)
        assert error.startswith("WarmBuilder: ") and words in error
    paths = [artifact_of(result) for result in results[::2]]
    assert [constant_of(path) for path in paths] == list(range(len(FAULTS) + 1))
    assert builder.stats.failures == Counter(kind for _, kind, _ in FAULTS)
    # The folders of those that failed are deleted.
    folders = {Path(path).parent for path in paths}
    assert set(Path(paths[0]).parent.parent.iterdir()) == folders
    assert eventually(lambda: len(surroundings.processes()) <= 3), surroundings.processes()


def test_program_of_workers_killed_in_both_tries(make_builder):
    builder = make_builder(max_workers=1, f_build=build_or_fail)
    killer = with_fault(add_constant(1.0), measuring.kill_the_server)
    before, *lost = build(builder, add_constant(0.0), killer, add_constant(2.0))
    for result in lost:
        assert is_machinery_failure(result.error_msg)
        assert error_of(result).startswith(
            "machinery failure: WarmBuilder: the program that holds the worker processes ended"
        )
    (after,) = build(builder, add_constant(5.0))
    # The first was built before, and may be measured after the next batch was built.
    assert [constant_of(artifact_of(result)) for result in (before, after)] == [0, 5]
    assert builder.stats.failures == {"machinery": 2} and builder.stats.retries == 2


def test_paired_builder_hands_machinery_failures_on_as_paths(make_builder):
    builder = make_builder(max_workers=1, f_build=build_or_fail, paired=True)
    killer = with_fault(add_constant(1.0), measuring.kill_the_server)
    raiser = with_fault(add_constant(2.0), measuring.raise_error)
    (failed,), (raised,) = build(builder, killer), build(builder, raiser)
    path = artifact_of(failed)
    failure = failure_at(path)
    assert failure is not None and failure.kind == "machinery"
    assert "the program that holds the worker processes ended" in failure.message
    assert not os.path.exists(path)
    remove_build_dir(path)  # As TVM does after the batch.
    assert "ValueError: the fault of this test" in error_of(raised)


def no_space(*_arguments, **_options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("is_anywhere", [True, False])
def test_no_folder_for_the_artifact(make_builder, monkeypatch, is_anywhere):
    """The next batch has one again."""
    builder = make_builder(max_workers=1, paired=True)
    directory = builder._pool.directory
    mkdtemp = tempfile.mkdtemp

    def refuse(*, dir, prefix="tmp"):
        return mkdtemp(dir=dir, prefix=prefix) if is_anywhere and dir != directory else no_space()

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", refuse)
        (result,) = build(builder, add_constant(1.0))
    if is_anywhere:
        failure = failure_at(artifact_of(result))
        assert failure is not None and "No space left on device" in failure.message
        remove_build_dir(artifact_of(result))
    else:
        assert is_machinery_failure(error_of(result))
        assert "No space left on device" in error_of(result)
    assert builder.stats.failures == {"machinery": 1} and builder.stats.retries == 1
    assert constant_of(artifact_of(build(builder, add_constant(2.0))[0])) == 2.0


def test_deleted_directory_is_made_again(make_builder):
    builder = make_builder(max_workers=1)
    shutil.rmtree(builder._pool.directory)
    assert constant_of(artifact_of(build(builder, add_constant(1.0))[0])) == 1.0


def test_unpicklable_module_fails_only_its_candidate(make_builder):
    builder = make_builder(max_workers=1)
    function = tvm_ffi.convert(len)
    bad, good = build(builder, add_constant(1.0).with_attr("function", function), add_constant(2.0))
    assert "cannot be sent to a worker process" in error_of(bad)
    assert not is_machinery_failure(bad.error_msg)
    assert constant_of(artifact_of(good)) == 2.0
    assert builder.stats.failures == {"error": 1} and builder.stats.retries == 0


def limit_the_size_of_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))


def test_files_that_cannot_be_written(make_builder):
    builder = make_builder(max_workers=1, initializer=limit_the_size_of_files)
    results = build(builder, add_constant(1.0), add_constant(2.0))
    for result in results:
        assert re.search("File too large|temporary directory is full", error_of(result))
    assert sum(builder.stats.failures.values()) == 2


FULL = """
import os, subprocess, sys
from pathlib import Path
directory = os.environ["TMPDIR"]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", directory], check=True)
from building import add_constant, constant_of
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.utils import remove_build_dir
from tvm.target import Target
from tvm_droplet_ms.measure import WarmBuilder
from tvm_droplet_ms.measure.failures import failure_at

builder = WarmBuilder(max_workers=1, paired=True)
inputs = [BuilderInput(add_constant(i), Target("llvm")) for i in range(3)]

def build():
    return [(result.error_msg, result.artifact_path) for result in builder.build(inputs)]

before = build()
with open(Path(directory, "filler"), "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
    full = build()
os.unlink(filler.name)
after = build()
assert all(error is None for error, _ in before + after), before + after
assert [constant_of(path) for _, path in before + after] == [0, 1, 2] * 2
assert builder.stats.failures == {"machinery": 3} and builder.stats.retries == 3
paths = [path for _, path in full]
assert all(failure_at(path) for path in paths), paths
for path in paths:
    remove_build_dir(path)
builder.close()
assert os.listdir(directory) == []
print(failure_at(paths[0]).message)
"""


@pytest.mark.skipif(
    not shutil.which("unshare") or os.system("unshare --user --map-root-user --mount true") != 0,
    reason="needs a mount namespace of its own; test_files_that_cannot_be_written needs none",
)
def test_full_temporary_directory(surroundings):
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    printed = surroundings.run(*unshare, sys.executable, "-c", FULL)
    assert re.search("No space left on device|temporary directory is full", printed)


# Arguments.


def test_initializer_registers_functions(make_builder):
    def register() -> None:
        tvm.register_global_func("test.build", build_or_fail)

    builder = make_builder(max_workers=1, initializer=register, f_build="test.build", max_builds=1)
    results = build(builder, add_constant(1.0), add_constant(2.0))
    assert [constant_of(artifact_of(result)) for result in results] == [1, 2]


def test_time_limit_begins_with_build(make_builder):
    def build_for_long(mod, target, params):
        time.sleep(1.0)

    builder = make_builder(
        max_workers=1, timeout_sec=3.0, f_build=build_for_long, f_export=measuring.export_pid
    )
    # Waiting for the others takes the last one longer than the limit.
    for result in build(builder, *map(add_constant, range(4))):
        artifact_of(result)


def pids(results) -> Counter:
    """Number of builds per worker, from the artifacts of `measuring.export_pid`."""
    return Counter(Path(artifact_of(result)).name for result in results)


def test_workers_that_grow_are_replaced(make_builder):
    builder = make_builder(
        max_workers=1,
        max_growth_mb=100,
        f_build=measuring.build_and_leak,
        f_export=measuring.export_pid,
    )
    # The second block of 64 MiB is too much growth.
    assert set(pids(build(builder, *map(add_constant, range(8)))).values()) == {2}


def test_dropped_builder_ends_its_workers(surroundings):
    def use() -> None:
        builder = WarmBuilder(max_workers=1, f_build=build_or_fail)
        results = build(
            builder, add_constant(1.0), with_fault(add_constant(2.0), measuring.raise_error)
        )
        artifact_of(results[0])
        error_of(results[1])

    use()
    gc.collect()
    surroundings.assert_nothing_is_left()


# Programs.

PROGRAM = """
print("top level", flush=True)
import numpy as np
import tvm_ffi

import tvm
from building import add_constant, constant_of
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.target import Target
from tvm_droplet_ms.measure import WarmBuilder, build_scheduled

def make_build(expected):
    def build(mod, target, params):
        assert params["p"].numpy().tolist() == expected and helper() == 3
        return build_scheduled(mod, target, params)
    return build

def helper():
    return three

three = 3
params = {"p": tvm.runtime.tensor(np.array([1.0, 2.0], "float32"))}
inputs = [BuilderInput(add_constant(i), Target("llvm"), params) for i in range(3)]
builder = WarmBuilder(max_workers=1, max_builds=1, f_build=make_build([1.0, 2.0]))
results = builder.build(inputs)
assert [result.error_msg for result in results] == [None] * 3, results[0].error_msg
print(*(constant_of(result.artifact_path) for result in results))
"""


def test_main_module_runs_once(surroundings):
    """Also as its workers are replaced; ``test_presets`` has a script without a main guard."""
    printed = surroundings.run(sys.executable, "-", stdin=PROGRAM)
    assert printed == "top level\n0.0 1.0 2.0\n"
    surroundings.assert_nothing_is_left()


INTERRUPTED = """
import measuring
from building import add_constant, build_or_fail, with_fault
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.target import Target
from tvm_droplet_ms.measure import WarmBuilder

builder = WarmBuilder(max_workers=2, timeout_sec=1000, f_build=build_or_fail)
faults = [measuring.hang, measuring.hang_with_children] * 2
mods = [with_fault(add_constant(i), fault) for i, fault in enumerate(faults)]
builder.build([BuilderInput(mod, Target("llvm")) for mod in mods])
"""


def test_interrupted_program_cleans_up(surroundings):
    """By Ctrl-C, sent to the whole process group; ``test_pool`` has programs that are killed."""
    parent = surroundings.start(INTERRUPTED)
    # It, the program of the workers, two workers, and two that one of those has started.
    assert eventually(lambda: len(surroundings.processes()) == 6)
    os.killpg(parent.pid, signal.SIGINT)
    _, errors = parent.communicate(timeout=PATIENCE_SECS)  # The builds have 1000 s.
    assert parent.returncode != 0
    # TVM turns a KeyboardInterrupt in a builder into the second.
    assert errors.rstrip().endswith(("KeyboardInterrupt", "RuntimeError"))
    surroundings.assert_nothing_is_left()


# Memory.


def memory_of(surroundings) -> float:
    """The memory of the workers and the program that holds them, shared pages once, in MiB."""
    total = 0
    for process in surroundings.processes():
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / (1 << 20)


@pytest.mark.slow
def test_thousands_of_builds_do_not_leak_memory(surroundings, make_builder):
    builder = make_builder(max_workers=2)
    used = []
    for batch in range(40):
        results = build(builder, *(add_constant(50 * batch + i) for i in range(50)))
        for result in results:
            remove_build_dir(artifact_of(result))
        used.append(memory_of(surroundings))
    # After 200 builds, and after 2,000.
    assert used[-1] < used[3] + 64, used
    assert max(used) < used[3] + 128, used


def tell_intrinsic(mod: IRModule, target: Target, _params: Any) -> Any:
    """Fail in words that say whether an intrinsic of tensor cores is registered."""
    found = TensorIntrin.get("wmma_sync_16x16x16_f16f16f32", allow_missing=True)
    raise ValueError("registered" if found is not None else "missing")


@pytest.mark.parametrize(("target", "word"), [(CUDA, "registered"), (None, "missing")])
def test_workers_of_a_known_target_have_its_intrinsics(make_builder, target, word):
    """Else each of them imports them before its first build, which takes seconds."""
    builder = make_builder(max_workers=1, f_build=tell_intrinsic, target=target)
    (result,) = builder.build([BuilderInput(add_constant(1), CUDA)])
    assert f"ValueError: {word}" in str(result.error_msg)


def test_workers_are_replaced_after_max_builds(make_builder):
    functions = {"f_build": measuring.build_nothing, "f_export": measuring.export_pid}
    builder = make_builder(max_workers=1, max_builds=2, **functions)
    assert list(pids(build(builder, *map(add_constant, range(6)))).values()) == [2, 2, 2]
    builder = make_builder(max_workers=1, max_builds=0, **functions)
    assert list(pids(build(builder, *map(add_constant, range(6)))).values()) == [6]
