# SPDX-License-Identifier: Apache-2.0
"""The builder and the runner together, through TVM's own tuning."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from building import chain

import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RunnerInput
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.measure import (
    PromptRunner,
    WarmBuilder,
    build_scheduled,
    fast_measure,
)

HOST = {"kind": "llvm", "num-cores": 1}
TWO_VECTORS = [TensorInfo("float32", (16,))] * 2
SHORT = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=1)


def matmul(size):
    return te.create_prim_func(te_workload.matmul(size, size, size))


def test_killed_program_does_not_end_tuning(tmp_path):
    """The one that holds the build workers, at the fourth build."""
    begun = tmp_path / "begun"
    begun.mkdir()

    def build(mod, target, params):
        Path(begun, str(time.monotonic_ns())).touch()
        if len(list(begun.iterdir())) == 4:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        return build_scheduled(mod, target, params)

    builder = WarmBuilder(max_workers=1, f_build=build)
    runner = PromptRunner(evaluator_config=SHORT)
    mods = tvm.IRModule({"small": matmul(16), "large": matmul(64)})
    try:
        with fast_tune_contexts():
            database = ms.tune_tir(
                mods,
                HOST,
                str(tmp_path),
                16,
                num_trials_per_iter=4,
                strategy="replay-trace",
                cost_model="random",
                builder=builder,
                runner=runner,
                seed=1,
            )
    finally:
        runner.close()
        builder.close()

    times = [float(min(record.run_secs)) for record in database.get_all_tuning_records()]
    # Builds in progress are retried once.
    assert len(times) >= 16 and all(secs < 1.0 for secs in times)
    assert builder.stats.failures == runner.stats.failures == {}
    assert builder.stats.retries >= 1


SCRIPT = """
import json, os, sys
import psutil
from test_presets import HOST, matmul
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.measure import fast_measure

print("started")
cpus = os.sched_getaffinity(0)
pair = fast_measure(HOST)
ms.tune_tir(
    matmul(64), HOST, "work", 8, num_trials_per_iter=4, **pair,
    strategy=DropletStrategy(explore_trials=4, stop=None),
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


def test_script_without_main_guard(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)

    ran = python("script.py", cwd=tmp_path, TMPDIR=str(temporary))

    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.count("started") == 1
    assert not list(temporary.iterdir())
    assert len(ms.database.JSONDatabase(work_dir=str(tmp_path / "work"))) == 8
    cpus, *workers = map(set, json.loads(ran.stdout.splitlines()[-1]))
    assert workers == [cpus, cpus]


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


@pytest.mark.parametrize(
    ("chosen", "repeats", "least_secs"),
    [
        # Repeats take 20 ms by default; the first candidate of a task gets five.
        (None, 5, 0.1),
        (EvaluatorConfig(number=1, repeat=7, min_repeat_ms=0), 7, 0.0),
    ],
)
def test_fast_measure_applies_its_arguments(same_cpus, chosen, repeats, least_secs):
    pair = fast_measure(
        HOST, max_workers=3, timeout_sec=7.0, evaluator_config=chosen, process_wide=False
    )
    builder, runner = pair["builder"], pair["runner"]
    try:
        assert set(pair) == {"builder", "runner"}
        limits = builder.timeout_sec, runner.config.timeout_sec
        assert (builder.max_workers, *limits) == (3, 7.0, 7.0)
        (built,) = builder.build([BuilderInput(chain(1_000), Target(HOST))])
        (future,) = runner.run([RunnerInput(built.artifact_path, "cpu", TWO_VECTORS)])
        assert len(future.result().run_secs) == repeats
        assert runner.stats.timing_secs >= least_secs
    finally:
        runner.close()
        builder.close()
