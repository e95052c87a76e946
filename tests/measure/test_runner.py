# SPDX-License-Identifier: Apache-2.0
"""The runner: its measurements, and every way in which a candidate can fail."""

import contextlib
import gc
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

import psutil
import pytest
from building import chain
from measuring import INTERRUPTIBLE, PATIENCE_SECS, our_processes, wait_until

import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RunnerInput
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.script import tirx as T
from tvm.target import Target
from tvm_droplet_ms.measure import (
    Failure,
    PromptRunner,
    WarmBuilder,
    fast_start,
    is_machinery_failure,
    is_unmeasured,
)
from tvm_droplet_ms.measure.failures import failure_path

TWO_VECTORS = [TensorInfo("float32", (16,))] * 2
SHORT = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=5)


def chain_of_products(length):
    @T.prim_func
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for _ in range(T.int64(length)):
            b[0] = b[0] * a[0]

    return tvm.IRModule({"main": main})


def wild_store():
    @T.prim_func
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"global_symbol": "main"})
        b[T.int64(1 << 40)] = a[0]

    return tvm.IRModule({"main": main})


def leaves_the_process():
    @T.prim_func
    def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.func_attr({"global_symbol": "main"})
        T.evaluate(T.call_extern("int32", "exit", 3))

    return tvm.IRModule({"main": main})


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """Paths of artifacts by name, each in a folder of its own."""
    modules = {
        "good": chain(100_000),
        "slow": chain(100_000_000),
        "ms": chain(1_000_000),
        "endless": chain(1 << 60),
        "wild": wild_store(),
        "exit": leaves_the_process(),
        "wide": chain(1_000_000, size=32),
        "8x": chain(800_000),
        "64x": chain(6_400_000),
    }
    paths = {}
    for name, mod in modules.items():
        paths[name] = str(tmp_path_factory.mktemp(name) / "module.so")
        tvm.tirx.build(mod, target="llvm").export_library(paths[name])
    folder = tmp_path_factory.mktemp("broken")
    whole = Path(paths["good"]).read_bytes()
    (folder / "torn.so").write_bytes(whole[: len(whole) // 2])
    (folder / "text.so").write_text("no library")
    return paths | {
        "missing": str(folder / "missing.so"),
        "torn": str(folder / "torn.so"),
        "text": str(folder / "text.so"),
    }


@contextlib.contextmanager
def running(**arguments):
    runner = PromptRunner(**arguments)
    try:
        yield runner
    finally:
        runner.close()


@pytest.fixture(scope="module")
def shared_runner():
    with running(evaluator_config=SHORT, hopeless=math.inf) as runner:
        yield runner


def measured(runner, *paths, args_info=TWO_VECTORS):
    futures = runner.run([RunnerInput(path, "cpu", args_info) for path in paths])
    assert all(future.done() for future in futures)
    return [future.result() for future in futures]


def secs_of(result):
    assert result.error_msg is None, result.error_msg
    return [float(secs) for secs in result.run_secs]


def assert_machinery_failed(result, words):
    """The form that keeps TVM's database from storing a failed candidate."""
    assert result.run_secs is not None and len(result.run_secs) == 0
    assert is_unmeasured(result.run_secs) and is_machinery_failure(result.error_msg)
    assert result.error_msg.startswith("machinery failure: ")
    assert words in result.error_msg


# Measurements.


def test_times_agree_with_the_local_runner(artifacts):
    config = EvaluatorConfig(number=1, repeat=3, min_repeat_ms=10)
    local = ms.runner.LocalRunner(evaluator_config=config)
    times = {"local": [], "prompt": []}
    with running(evaluator_config=config) as prompt:
        measured(prompt, artifacts["ms"]), measured(local, artifacts["ms"])
        for _ in range(7):
            times["prompt"] += secs_of(*measured(prompt, artifacts["ms"]))
            times["local"] += secs_of(*measured(local, artifacts["ms"]))

    spread = max(times["local"]) - min(times["local"])
    difference = abs(median(times["prompt"]) - median(times["local"]))
    assert difference <= spread + 0.02 * median(times["local"]), times


def test_results_are_in_the_order_of_the_inputs(artifacts, shared_runner):
    names = ["8x", "good", "64x", "good", "8x", "64x", "64x", "good"]

    results = measured(shared_runner, *(artifacts[name] for name in names))

    by_time = sorted(zip([min(secs_of(result)) for result in results], names, strict=True))
    assert [name for _, name in by_time] == ["good"] * 3 + ["8x"] * 2 + ["64x"] * 3


def test_what_would_be_timed_after_the_end_is_not_measured(artifacts, shared_runner):
    shared_runner.end_by(time.monotonic())
    (late,) = measured(shared_runner, artifacts["good"])
    shared_runner.end_by(math.inf)
    assert list(late.run_secs) == [] and "the time is over" in late.error_msg
    assert secs_of(measured(shared_runner, artifacts["good"])[0])


def pid_as_time(_module, _device, config, _arguments):
    """A second, and a nanosecond for each number of the process."""
    return [1.0 + 1e-9 * os.getpid()] * config.repeat


def test_candidate_near_best_is_timed_in_two_processes(artifacts):
    with running(f_run_evaluator=pid_as_time) as runner:
        results = measured(runner, artifacts["good"], artifacts["8x"])
    processes = [[round(1e9 * (secs - 1.0)) for secs in secs_of(result)] for result in results]
    (a, *first), (b, *second) = processes
    assert (first, second) == ([a, a, first[-1], first[-1]], [b, b, second[-1], second[-1]])
    assert a != first[-1] == b != second[-1], "each is timed again in a fresh worker, which stays"


def test_candidate_far_from_the_best_is_timed_in_one_process(artifacts, tmp_path):
    times = tmp_path / "times"
    with running(f_run_evaluator=evaluator_of_file(times)) as runner:
        times.write_text("[1.0]")
        (best,) = measured(runner, artifacts["good"])
        times.write_text("[1.2]")
        (other,) = measured(runner, artifacts["good"])
    assert (secs_of(best), secs_of(other)) == ([1.0] * 5, [1.2])


def test_best_time_is_kept_per_task(artifacts):
    with running(evaluator_config=SHORT) as runner:
        measured(runner, artifacts["good"])
        (wide,) = measured(runner, artifacts["wide"], args_info=[TensorInfo("float32", (32,))] * 2)
        assert runner.stats.hopeless == 0
        assert len(secs_of(wide)) == 5

        runner.close()
        measured(runner, artifacts["slow"])
        assert runner.stats.hopeless == 1


def test_builder_distinguishes_tasks_of_equal_arguments():
    modules = [chain(100_000), chain_of_products(2_000_000), chain(2_000_000)]
    target = Target("llvm")
    builder = WarmBuilder(max_workers=1)
    try:
        built = builder.build([BuilderInput(mod, target) for mod in modules])
        with running(evaluator_config=SHORT) as runner:
            results = measured(runner, *(result.artifact_path for result in built))
    finally:
        builder.close()

    assert [len(secs_of(result)) for result in results] == [5, 5, 1]


def test_process_is_that_of_the_worker(artifacts):
    with running(evaluator_config=SHORT, near_best_repeats=1) as runner:
        assert runner.stats.process is None
        measured(runner, artifacts["good"])
        process = runner.stats.process
        assert os.getpid() in [parent.pid for parent in psutil.Process(process).parents()]
        measured(runner, artifacts["good"])
        assert runner.stats.process == process
        measured(runner, artifacts["wild"], artifacts["good"])
        assert runner.stats.process != process


def test_hopeless_candidate_is_never_best(artifacts):
    with running(evaluator_config=SHORT) as runner:
        for name, repeats in (("ms", 5), ("slow", 1), ("slow", 1), ("good", 5), ("ms", 1)):
            (result,) = measured(runner, artifacts[name])
            assert len(secs_of(result)) == repeats, name


# Failures of candidates.


@pytest.mark.parametrize(
    ("name", "kinds", "words"),
    [
        ("wild", ["crash"], "SIGSEGV"),
        ("exit", ["crash"], "ended with status 3"),
        # The loader decides whether a torn library is an error or a crash.
        ("torn", ["error", "crash"], ""),
        ("text", ["error"], "text.so"),
    ],
)
def test_broken_artifact_fails_only_its_candidate(artifacts, shared_runner, name, kinds, words):
    before = shared_runner.stats.failures.copy()
    good, bad, still_good = measured(
        shared_runner, artifacts["good"], artifacts[name], artifacts["good"]
    )
    secs_of(good), secs_of(still_good)
    assert bad.run_secs is None
    assert bad.error_msg.startswith("PromptRunner: ") and words in bad.error_msg
    (kind,) = (shared_runner.stats.failures - before).elements()
    assert kind in kinds


def test_missing_artifact_is_not_candidates_failure(artifacts, shared_runner):
    """As where the folder of temporary files was cleared."""
    before = shared_runner.stats.failures["machinery"]

    bad, good = measured(shared_runner, artifacts["missing"], artifacts["good"])

    secs_of(good)
    assert_machinery_failed(bad, "missing.so is missing")
    assert shared_runner.stats.failures["machinery"] == before + 1


@pytest.mark.parametrize(
    "args_info",
    [
        [TensorInfo("float32", (16,))],
        [TensorInfo("float32", (16,))] * 3,
        [TensorInfo("float32", (8,))] * 2,
        [TensorInfo("int32", (16,))] * 2,
    ],
)
def test_wrong_arguments(artifacts, shared_runner, args_info):
    (result,) = measured(shared_runner, artifacts["good"], args_info=args_info)

    assert result.run_secs is None
    assert result.error_msg.startswith("PromptRunner: ")
    secs_of(*measured(shared_runner, artifacts["good"]))


def test_kernel_that_hangs(artifacts):
    with running(evaluator_config=SHORT, timeout_sec=1.5) as runner:
        good, bad, still_good = measured(
            runner, artifacts["good"], artifacts["endless"], artifacts["good"]
        )

        secs_of(good), secs_of(still_good)
        assert bad.error_msg == "PromptRunner: killed after 1.5 s, its time limit"
        assert runner.stats.failures == {"timeout": 1}


def test_time_limit_follows_the_best():
    evaluator = EvaluatorConfig(number=3, repeat=1, min_repeat_ms=100)
    with running(evaluator_config=evaluator, hopeless=3.0, near_best_repeats=5) as runner:
        # A hopeless call takes 0.3 s: two of them, five repeats of three, twice, and ten seconds.
        assert runner.time_limit(0.1) == pytest.approx(10 + 2 * (2 * 0.3 + 5 * 0.9))
        # Here a repeat is the least one of 0.1 s and a call of 3 ms.
        assert runner.time_limit(1e-3) == pytest.approx(10 + 2 * (2 * 3e-3 + 5 * 0.103))
        assert runner.time_limit(math.inf) == runner.time_limit(10.0) == 30.0


def test_kernel_that_hangs_beside_a_known_best_is_killed_sooner(artifacts, monkeypatch):
    monkeypatch.setattr("tvm_droplet_ms.measure.candidate_timer.LOAD_SECS", 1.0)
    with running(evaluator_config=SHORT, timeout_sec=600.0) as runner:
        secs_of(*measured(runner, artifacts["good"]))
        (bad,) = measured(runner, artifacts["endless"])
        limit = float(re.fullmatch("PromptRunner: killed after (.*) s, .*", bad.error_msg)[1])
        assert 1.0 < limit < 5.0


# Invalid times.


def evaluator_of_file(path):
    """Answers with the times in a file, which the test changes between candidates."""

    def evaluate(module, device, config, arguments):
        return json.loads(Path(path).read_text())

    return evaluate


def test_time_that_is_not_positive_number_is_failure(artifacts, tmp_path):
    times = tmp_path / "times"
    bad = ([math.nan], [0.0], [-1.0], [math.inf], [1.0, math.nan], [])
    with running(f_run_evaluator=evaluator_of_file(times)) as runner:
        for number, value in enumerate(bad, 1):
            times.write_text(json.dumps(value))
            (result,) = measured(runner, artifacts["good"])
            assert result.run_secs is None
            assert result.error_msg.startswith("PromptRunner: ")
            assert runner.stats.failures == {"invalid time": number}, value

        # None of them becomes the best time, which would make all others hopeless.
        times.write_text("[2.0]")
        assert secs_of(*measured(runner, artifacts["good"])) == [2.0] * 5


def test_database_of_invalid_times_opens_again(tmp_path):
    """Each candidate has one of these times; the cleanup after each selects the next."""
    counter = tmp_path / "counter"
    counter.touch()
    answers = [1e-3, math.nan, 0.0, -1e-3, 2e-3]

    def evaluate(module, device, config, arguments):
        return [answers[counter.stat().st_size % len(answers)]] * config.repeat

    def next_answer():
        with counter.open("a") as file:
            file.write("x")

    fast_start()
    work_dir = tmp_path / "work"
    builder = WarmBuilder(max_workers=1)
    try:
        options = {"f_run_evaluator": evaluate, "f_cleanup": next_answer}
        with running(near_best_repeats=1, **options) as runner:
            ms.tune_tir(
                te.create_prim_func(te_workload.matmul(16, 16, 16)),
                {"kind": "llvm", "num-cores": 1},
                str(work_dir),
                10,
                num_trials_per_iter=5,
                strategy="replay-trace",
                cost_model="random",
                builder=builder,
                runner=runner,
                seed=1,
            )
            assert (runner.stats.runs, runner.stats.failures) == (10, {"invalid time": 6})
    finally:
        builder.close()

    database = ms.database.JSONDatabase(work_dir=str(work_dir))
    mod = ms.tir_integration._normalize_mod(te.create_prim_func(te_workload.matmul(16, 16, 16)))
    valid = database.get_top_k(database.commit_workload(mod), 99)
    assert sorted(min(map(float, record.run_secs)) for record in valid) == pytest.approx(
        [1e-3, 1e-3, 2e-3, 2e-3]
    )


# Functions of the user.


def registered(folder):
    """An initializer that registers three functions, which leave files in a folder."""

    def initialize():
        import tvm
        from tvm.s_tir.meta_schedule.runner import local_runner

        @tvm.register_global_func("test_runner.allocate", override=True)
        def allocate(device, args_info, repeat):
            Path(folder, "allocated").touch()
            args_info = [list(info) for info in args_info]
            return local_runner.default_alloc_argument(device, args_info, repeat)

        @tvm.register_global_func("test_runner.evaluate", override=True)
        def evaluate(module, device, config, arguments):
            return [0.125] * (int(config[1]) * len(arguments))

        @tvm.register_global_func("test_runner.clean", override=True)
        def clean():
            with Path(folder, "cleaned").open("a") as file:
                file.write("x")

    return initialize


def called(name):
    """A function that calls the global one."""

    def call(*arguments):
        import tvm

        result = tvm.get_global_func(name)(*arguments)
        return result if result is None else list(result)

    return call


@pytest.mark.parametrize("by_name", [True, False])
def test_functions_of_the_user(artifacts, tmp_path, by_name):
    names = {
        "f_alloc_argument": "test_runner.allocate",
        "f_run_evaluator": "test_runner.evaluate",
        "f_cleanup": "test_runner.clean",
    }
    functions = {key: name if by_name else called(name) for key, name in names.items()}
    with running(initializer=registered(str(tmp_path)), alloc_repeat=2, **functions) as runner:
        good, text, wild = measured(runner, artifacts["good"], artifacts["text"], artifacts["wild"])

    assert secs_of(good) == secs_of(wild) == [0.125] * 5
    assert text.run_secs is None
    assert (tmp_path / "allocated").exists()
    # Once in each process that ran a candidate: the two valid ones ran in a fresh one besides.
    assert (tmp_path / "cleaned").read_text() == "xxxxx"


def test_new_worker_is_initialized_too(artifacts, tmp_path):
    """A new worker starts after a crash, here of the evaluator."""

    def evaluate(*_):
        if not Path(tmp_path, "crashed").exists():
            Path(tmp_path, "crashed").touch()
            os._exit(5)
        return called("test_runner.evaluate")(*_)

    with running(initializer=registered(str(tmp_path)), f_run_evaluator=evaluate) as runner:
        crashed, good = measured(runner, artifacts["good"], artifacts["good"])

    assert crashed.error_msg == "PromptRunner: its process ended with status 5"
    assert secs_of(good) == [0.125] * 5


# Processes that end.


def hold_first(folder):
    """An evaluator whose first call writes its process ids and waits."""

    def evaluate(module, device, config, arguments):
        held = Path(folder, "held")
        if not held.exists():
            Path(folder, "writing").write_text(f"{os.getpid()} {os.getppid()}")
            Path(folder, "writing").rename(held)
            time.sleep(120)
        return [1.0] * (config.repeat * len(arguments))

    return evaluate


def held_processes(folder):
    """The worker and the program that holds it, once the evaluator waits."""
    held = Path(folder, "held")
    wait_until(held.exists)
    worker, server = map(int, held.read_text().split())
    return {"worker": worker, "server": server}


def test_candidate_is_tried_once_more_after_program_was_killed(artifacts, tmp_path):
    def kill():
        os.kill(held_processes(tmp_path)["server"], signal.SIGKILL)

    with running(f_run_evaluator=hold_first(tmp_path)) as runner:
        killer = threading.Thread(target=kill)
        killer.start()
        results = measured(runner, artifacts["good"], artifacts["good"])
        killer.join()
        assert [secs_of(result) for result in results] == [[1.0] * 5] * 2
        assert runner.stats.failures == {} and runner.stats.retries == 1


def test_program_killed_in_both_tries(artifacts):
    def evaluate(*_):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(120)

    with running(f_run_evaluator=evaluate) as runner:
        (result,) = measured(runner, artifacts["good"])

        assert_machinery_failed(result, "ended, with status -9")
        assert runner.stats.failures == {"machinery": 1} and runner.stats.retries == 1


@pytest.mark.parametrize("error", [OSError("no process"), AttributeError("a fault of ours")])
def test_pool_exception_gives_every_candidate_a_result(artifacts, monkeypatch, error):
    def fail(*_, **__):
        raise error

    with running() as runner:
        with monkeypatch.context() as patch:
            patch.setattr(runner._pool, "submit", fail)
            results = measured(runner, *[artifacts["good"]] * 3)
        for result in results:
            assert_machinery_failed(result, str(error))
        secs_of(*measured(runner, artifacts["good"]))


def test_folder_named_as_tasks_file(artifacts, tmp_path, monkeypatch):
    """For an artifact without a folder, that file would be in the working directory."""
    (tmp_path / "task").mkdir()
    (tmp_path / "bare.so").write_bytes(Path(artifacts["good"]).read_bytes())
    monkeypatch.chdir(tmp_path)
    with running(evaluator_config=SHORT) as runner:
        (result,) = measured(runner, "bare.so")

    assert len(secs_of(result)) == 5


def test_build_failure_is_passed_on(shared_runner, tmp_path):
    failure = Failure("machinery", "no space for a/b.so: 100% full")

    (result,) = measured(shared_runner, failure_path(str(tmp_path), failure))

    assert_machinery_failed(result, "no space for a/b.so: 100% full")


def test_close_ends_the_worker_and_another_batch_starts_it_again(artifacts):
    before = our_processes()
    with running(evaluator_config=SHORT) as runner:
        for _ in range(2):
            secs_of(*measured(runner, artifacts["good"]))
            assert our_processes() > before
            runner.close()
            assert our_processes() == before


@pytest.mark.parametrize("artifact", ["good", "text"])
def test_dropped_runner_ends_its_worker(artifacts, artifact):
    before = our_processes()
    runner = PromptRunner(evaluator_config=SHORT)
    measured(runner, artifacts[artifact])
    assert artifact == "text" or our_processes() > before

    del runner
    gc.collect()

    wait_until(lambda: our_processes() == before)


INTERRUPTED = (
    INTERRUPTIBLE
    + """
import sys
sys.path.insert(0, sys.argv[3])
from test_runner import TWO_VECTORS, hold_first
from tvm.s_tir.meta_schedule.runner import RunnerInput
from tvm_droplet_ms.measure import PromptRunner

runner = PromptRunner(f_run_evaluator=hold_first(sys.argv[2]))
runner.run([RunnerInput(sys.argv[1], "cpu", TWO_VECTORS)] * 3)
"""
)


def test_interrupted_program_cleans_up(artifacts, tmp_path):
    """``test_pool`` has programs that are killed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, artifacts["good"], str(tmp_path), here],
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    held = held_processes(tmp_path)
    assert list(temporary.iterdir())

    os.killpg(process.pid, signal.SIGINT)  # As the terminal does, on Ctrl-C.
    _, error = process.communicate(timeout=PATIENCE_SECS)

    # TVM turns Python's KeyboardInterrupt into a RuntimeError of the same traceback.
    assert process.returncode == 1, error
    wait_until(lambda: not any(map(psutil.pid_exists, held.values())))
    wait_until(lambda: not list(temporary.iterdir()))


# Statistics.


def test_stats_count_runs_failures_and_seconds(artifacts):
    with running(evaluator_config=SHORT) as runner:
        start = time.perf_counter()
        measured(runner, *(artifacts[name] for name in ("8x", "slow", "good", "text", "slow")))
        wall = time.perf_counter() - start

        stats = runner.stats
        assert (stats.runs, stats.hopeless, stats.near_best) == (5, 2, 2)
        assert stats.failures == {"error": 1}
        assert 0.0 < stats.load_secs < stats.timing_secs
        assert stats.load_secs + stats.timing_secs <= stats.wall_secs <= wall
