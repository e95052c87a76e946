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
"""The builder and the runner together, through TVM's own tuning."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from measuring import INTERRUPTIBLE, PATIENCE_SECS

import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RunnerInput
from tvm.s_tir.meta_schedule.utils import remove_build_dir
from tvm.script import tirx as T
from tvm.target import Target
from tvm_droplet_ms.measure import (
    PromptRunner,
    WarmBuilder,
    build_scheduled,
    fast_measure,
    fast_start,
    is_machinery_failure,
)
from tvm_droplet_ms.measure.presets import _share_cpus

HOST = {"kind": "llvm", "num-cores": 1}
TWO_VECTORS = [TensorInfo("float32", (16,))] * 2
SHORT = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=1)


def chain(length):
    """Operations that each wait for the one before."""

    @T.prim_func
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for _ in range(length):
            b[0] = b[0] + a[0]

    return tvm.IRModule({"main": main})


def matmul(size=16):
    a = te.placeholder((size, size), name="a")
    b = te.placeholder((size, size), name="b")
    k = te.reduce_axis((0, size), name="k")
    product = te.compute(
        (size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product"
    )
    return te.create_prim_func([a, b, product])


def build_inputs(*lengths):
    return [BuilderInput(chain(length), Target(HOST)) for length in lengths]


def start_measuring(runner, built):
    return runner.run([RunnerInput(result.artifact_path, "cpu", TWO_VECTORS) for result in built])


def our_processes():
    return {process.pid for process in psutil.Process().children(recursive=True)}


def wait_until(condition, timeout=PATIENCE_SECS):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def build_behind(gate):
    """A build function that waits until a file is there, and refuses modules named so in it."""

    def build(mod, target, params):
        while not gate.exists():
            time.sleep(0.02)
        (loop,) = [mod["main"].body]
        if str(int(loop.extent)) in gate.read_text().split():
            raise ValueError(f"no loop of {loop.extent}")
        return build_scheduled(mod, target, params)

    return build


@pytest.fixture
def gate(tmp_path):
    return tmp_path / "gate"


@pytest.fixture
def overlapping(gate):
    """A builder that waits for the gate, and its runner."""
    builder = WarmBuilder(max_workers=2, overlap=True, f_build=build_behind(gate))
    runner = PromptRunner(builder=builder, evaluator_config=SHORT)
    yield builder, runner
    gate.touch()
    runner.close()
    builder.close()


# Overlap.


def test_builds_go_on_after_build_returned(overlapping, gate):
    builder, runner = overlapping
    lengths = [800_000, 1_000, 6_400_000, 100_000, 100, 20_000_000]

    built = builder.build(build_inputs(*lengths))
    futures = start_measuring(runner, built)

    assert all(result.error_msg is None for result in built)
    assert not any(future.done() for future in futures)
    gate.touch()
    secs = [min(map(float, future.result().run_secs)) for future in futures]
    assert sorted(secs) == [secs[lengths.index(length)] for length in sorted(lengths)]
    assert builder.stats.builds == runner.stats.runs == len(lengths)
    assert builder.stats.failures == runner.stats.failures == {}
    assert builder.stats.build_secs > 0.0


def test_failed_build_is_failed_run(overlapping, gate):
    builder, runner = overlapping
    gate.write_text("200 400")

    built = builder.build(build_inputs(100, 200, 300, 400))
    results = [future.result() for future in start_measuring(runner, built)]

    assert [result.run_secs is None for result in results] == [False, True, False, True]
    assert all("WarmBuilder: " in results[i].error_msg for i in (1, 3))
    assert "no loop of 200" in results[1].error_msg
    assert "no loop of 400" in results[3].error_msg
    assert runner.stats.failures == {"build": 2}
    assert builder.stats.failures == {"error": 2}


def test_tvm_removes_the_folder_of_every_candidate(overlapping, gate):
    """Those of failed builds too: it fails itself where there is none, which ends the tuning."""
    builder, runner = overlapping
    gate.write_text("200")

    built = builder.build(build_inputs(100, 200, 300))
    for future in start_measuring(runner, built):
        future.result()
    folders = [os.path.dirname(result.artifact_path) for result in built]
    for result in built:
        remove_build_dir(result.artifact_path)

    assert len(set(folders)) == 3
    assert not any(map(os.path.exists, folders))


def test_no_folder_for_the_artefacts_is_a_failure_of_the_machinery(overlapping, gate, monkeypatch):
    """As on a full disk. TVM must not be told of a folder that it cannot remove."""
    builder, runner = overlapping
    directory = builder._pool.directory
    mkdtemp = tempfile.mkdtemp

    def refuse_ours(*, dir, prefix="tmp"):
        if dir == directory:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return mkdtemp(dir=dir, prefix=prefix)

    monkeypatch.setattr(tempfile, "mkdtemp", refuse_ours)
    built = builder.build(build_inputs(200, 300))
    results = [future.result() for future in start_measuring(runner, built)]
    for result in built:
        remove_build_dir(result.artifact_path)

    for result in results:
        assert len(result.run_secs) == 0
        assert is_machinery_failure(result.error_msg)
        assert "No space left on device" in result.error_msg


def test_promised_build_is_tried_once_more_after_program_was_killed(tmp_path):
    marker = tmp_path / "killed"

    def build(mod, target, params):
        if not marker.exists():
            marker.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        return build_scheduled(mod, target, params)

    builder = WarmBuilder(max_workers=1, overlap=True, f_build=build)
    runner = PromptRunner(builder=builder, evaluator_config=SHORT)
    try:
        built = builder.build(build_inputs(100, 200))
        results = [future.result() for future in start_measuring(runner, built)]
        for result in built:
            remove_build_dir(result.artifact_path)
    finally:
        runner.close()
        builder.close()

    assert all(result.error_msg is None for result in results)
    assert builder.stats.failures == runner.stats.failures == {}
    assert builder.stats.retries == 2


@pytest.mark.parametrize("first", ["builder", "runner"])
def test_close_in_a_batch_leaves_no_process(gate, first):
    before = our_processes()
    builder = WarmBuilder(max_workers=1, overlap=True, f_build=build_behind(gate))
    runner = PromptRunner(builder=builder)
    futures = start_measuring(runner, builder.build(build_inputs(*range(100, 108))))
    wait_until(lambda: len(our_processes() - before) == 4)  # Two programs, a worker each.

    for part in (builder, runner) if first == "builder" else (runner, builder):
        part.close()

    results = [future.result() for future in futures]
    assert all(is_machinery_failure(result.error_msg) for result in results)
    # The results were there last; nothing was started again for them.
    assert our_processes() == before


INTERRUPTED = (
    INTERRUPTIBLE
    + """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_presets import build_behind, build_inputs, start_measuring
from tvm_droplet_ms.measure import PromptRunner, WarmBuilder

never = Path(sys.argv[2], "never")
builder = WarmBuilder(max_workers=1, overlap=True, f_build=build_behind(never))
futures = start_measuring(PromptRunner(builder=builder), builder.build(build_inputs(1, 2, 3, 4)))
print("waiting", flush=True)
futures[0].result()
"""
)


def test_ctrl_c_in_a_batch_ends_the_program(tmp_path):
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, here, str(tmp_path)],
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "waiting\n"
    children = psutil.Process(process.pid).children(recursive=True)
    assert children

    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=PATIENCE_SECS)
    finally:
        process.kill()
        process.communicate()

    wait_until(lambda: not any(child.is_running() for child in children))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("cpus", "threads", "overlap", "timed", "building"),
    [
        (8, 4, True, {0, 1, 2, 3}, {4, 5, 6, 7}),
        (2, 1, True, {0}, {1}),
        (4, 4, True, {0, 1, 2, 3}, {0, 1, 2, 3}),
        (1, 1, True, {0}, {0}),
        (2, 8, True, {0, 1}, {0, 1}),
        (8, 4, False, set(range(8)), set(range(8))),
    ],
)
def test_shares_of_the_cpus(cpus, threads, overlap, timed, building):
    assert _share_cpus(frozenset(range(cpus)), threads, overlap) == (timed, building)


# Through TVM's tuning.


def tuned(work_dir, pair, trials=8, mods=None, **arguments):
    fast_start()
    return ms.tune_tir(
        mods or matmul(),
        HOST,
        str(work_dir),
        trials,
        num_trials_per_iter=4,
        strategy="replay-trace",
        cost_model="random",
        seed=1,
        **pair,
        **arguments,
    )


def times_of(database):
    return [float(min(record.run_secs)) for record in database.get_all_tuning_records()]


@pytest.fixture(scope="module")
def pair():
    pair = {
        "builder": WarmBuilder(max_workers=2, overlap=True),
        "runner": None,
    }
    pair["runner"] = PromptRunner(builder=pair["builder"], evaluator_config=SHORT)
    yield pair
    for part in pair.values():
        part.close()


def test_tuning_with_overlap(pair, tmp_path):
    before = pair["builder"].stats.builds
    database = tuned(tmp_path, pair)

    times = times_of(database)
    assert len(times) == 8
    assert all(1e-8 < secs < 1e-2 for secs in times)
    assert pair["builder"].stats.builds == before + 8


def test_two_tasks_with_overlap(pair, tmp_path):
    mods = tvm.IRModule({"small": matmul(16), "large": matmul(128)})

    database = tuned(tmp_path, pair, trials=16, mods=mods, task_scheduler="gradient")

    times = {16: [], 128: []}
    for record in database.get_all_tuning_records():
        size = int(record.args_info[0].shape[0])
        times[size].append(float(min(record.run_secs)))
    assert sum(map(len, times.values())) >= 16
    # 512 times the work: each result is with its own task.
    assert 4 * min(times[16]) < min(times[128])


def test_failed_builds_do_not_end_a_tuning_with_overlap(tmp_path):
    def every_other_fails(mod, target, params):
        import tvm_ffi

        if tvm_ffi.structural_hash(mod) % 2:
            raise ValueError("not this one")
        return build_scheduled(mod, target, params)

    builder = WarmBuilder(max_workers=2, overlap=True, f_build=every_other_fails)
    runner = PromptRunner(builder=builder, evaluator_config=SHORT)
    try:
        times = times_of(tuned(tmp_path, {"builder": builder, "runner": runner}))
    finally:
        runner.close()
        builder.close()

    failed = runner.stats.failures["build"]
    assert 0 < failed < 8
    assert [secs > 1e9 for secs in times] == [False] * (8 - failed) + [True] * failed


@pytest.mark.parametrize("overlap", [False, True])
def test_killed_program_does_not_end_tuning(tmp_path, overlap):
    """The one that holds the build workers, at the fourth build."""
    begun = tmp_path / "begun"
    begun.mkdir()

    def build(mod, target, params):
        Path(begun, str(time.monotonic_ns())).touch()
        if len(list(begun.iterdir())) == 4:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        return build_scheduled(mod, target, params)

    builder = WarmBuilder(max_workers=1, overlap=overlap, f_build=build)
    runner = PromptRunner(builder=builder if overlap else None, evaluator_config=SHORT)
    mods = tvm.IRModule({"small": matmul(16), "large": matmul(64)})
    try:
        times = times_of(
            tuned(tmp_path, {"builder": builder, "runner": runner}, trials=16, mods=mods)
        )
    finally:
        runner.close()
        builder.close()

    # Builds in progress are retried once.
    assert len(times) >= 16 and all(secs < 1.0 for secs in times)
    assert builder.stats.failures == runner.stats.failures == {}
    assert builder.stats.retries >= 1


# fast_measure


SCRIPT = """
import json, os, sys
import psutil
from test_presets import HOST, matmul
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.measure import fast_measure

print("started")
cpus = os.sched_getaffinity(0)
pair = fast_measure(HOST, overlap=sys.argv[1] == "overlap")
ms.tune_tir(
    matmul(64), HOST, "work", 8, num_trials_per_iter=4, **pair,
    strategy=DropletStrategy(
        explore_trials=4,
        descent_batch_size=4,
    ),
)
assert pair["builder"].stats.failures == pair["runner"].stats.failures == {}
assert pair["builder"].stats.builds == pair["runner"].stats.runs == 8
children = psutil.Process().children(recursive=True)
programs = [child.pid for child in children if child.ppid() == os.getpid()]
workers = [[child for child in children if child.ppid() == program] for program in programs]
affinities = [
    sorted({cpu for worker in group for cpu in worker.cpu_affinity()}) for group in workers
]
print(json.dumps([sorted(cpus), *affinities]))
"""


def python(*arguments, cwd, **environment):
    search = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": search} | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("overlap", [False, True])
def test_script_without_main_guard(tmp_path, overlap):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)

    ran = python("script.py", "overlap" if overlap else "", cwd=tmp_path, TMPDIR=str(temporary))

    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.count("started") == 1
    assert not list(temporary.iterdir())
    assert len(ms.database.JSONDatabase(work_dir=str(tmp_path / "work"))) == 8
    cpus, *workers = map(set, json.loads(ran.stdout.splitlines()[-1]))
    threads = python("-c", "import tvm; print(tvm.runtime.num_threads())", cwd=tmp_path).stdout
    # The third program times what is near the best in fresh workers.
    first, second, fresh = workers
    assert fresh in (set(), second)
    if overlap and len(cpus) > int(threads):
        assert (first | second, first & second) == (cpus, set())
    else:
        assert first == second == cpus


def test_fast_measure_leaves_its_caller_on_the_same_cpus(tmp_path):
    """TVM binds the thread that first asks for its thread pool to some of the CPUs."""
    code = (
        "import os; from tvm_droplet_ms.measure import fast_measure; "
        "before = os.sched_getaffinity(0); pairs = [fast_measure('llvm') for _ in range(2)]; "
        "assert os.sched_getaffinity(0) == before, os.sched_getaffinity(0); "
        "assert [pair['builder'].max_workers for pair in pairs] == [len(before)] * 2"
    )

    ran = python("-c", code, cwd=tmp_path)

    assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.fixture
def same_cpus():
    cpus = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, cpus)


@pytest.mark.parametrize("overlap", [False, True])
def test_fast_measure_applies_its_arguments(same_cpus, overlap):
    pair = fast_measure(HOST, max_workers=3, timeout_sec=7.0, overlap=overlap)
    builder, runner = pair["builder"], pair["runner"]
    try:
        assert set(pair) == {"builder", "runner"}
        assert (builder.max_workers, builder.timeout_sec, runner.timeout_sec) == (3, 7.0, 7.0)
        (built,) = builder.build(build_inputs(1_000))
        result = start_measuring(runner, [built])[0].result()
        # Repeats take 20 ms by default; the first candidate of a task gets five.
        assert len(result.run_secs) == 5
        assert 0.1 <= runner.stats.timing_secs
        assert runner.config.evaluator.min_repeat_ms == 20
    finally:
        runner.close()
        builder.close()


def test_evaluator_can_be_chosen(same_cpus):
    chosen = EvaluatorConfig(number=1, repeat=7, min_repeat_ms=0)
    pair = fast_measure("llvm", max_workers=1, evaluator_config=chosen)
    try:
        built = pair["builder"].build(build_inputs(1_000))
        result = start_measuring(pair["runner"], built)[0].result()
    finally:
        for part in pair.values():
            part.close()

    assert len(result.run_secs) == 7


@pytest.mark.parametrize("target", ["no_such_target", {"kind": "llvm", "no_such_option": 1}])
def test_unknown_target_is_rejected(target):
    before = our_processes()

    with pytest.raises(ValueError, match="no_such"):
        fast_measure(target)

    assert our_processes() == before


def test_argument_out_of_range_is_rejected(same_cpus):
    with pytest.raises(ValueError, match="timeout_sec = 0, expected"):
        fast_measure("llvm", timeout_sec=0)
