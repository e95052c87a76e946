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
"""DropletStrategy against TVM's `evolutionary` and TVM's own droplet, side by side, live.

    python examples/compare_live.py --out compare --show-as-shipped     # about an hour on 2 cores
    python examples/compare_live.py --out compare --table-only --markdown

Methods, all with the same builder, runner, cost model, seeds and number of measured trials:

evolutionary
    ``ms.tune_tir(..., strategy="evolutionary")``.
droplet
    ``ms.tune_tir(..., strategy=DropletStrategy())`` with its defaults.
tvm-droplet
    What ``ms.tune_tir(..., post_optimization=True)`` does, with its trials charged: evolutionary
    search for trials - P, then ``PostOpt`` for P (``--post-trials``, a third of the trials unless
    told). Every candidate that PostOpt sends to the builder is a trial, the re-measured incumbent
    and the failures too. It may stop before P; TVM cannot spend the rest, so it stays unspent.
    As it ships, PostOpt makes its own builder, whose timeout of 10 s is shorter than what its
    workers import first, and a runner of other settings than the search's
    (``meta_schedule/post_optimization/space.py``). ``--show-as-shipped`` shows what comes of that.
    In the comparison it is given the builder and the runner of the other methods.

Every run is a process of its own, one after the other, in an order that rotates from seed to seed
and from layer to layer. A finished run is a file in ``--out`` and is not repeated: after a stop,
the same command goes on. After changing the code of a strategy, use another ``--out``. After the
runs of a layer, their winners at every checkpoint are rebuilt from their traces, as
``compile_tir`` does, and timed in turns in one more process. Trials are measured in batches of
``--num-trials-per-iter`` = 32, so that what stood at 32 and 64 are whole batches.
"""

import argparse
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from _compare_report import (
    LEGEND,
    Results,
    as_shipped_report,
    best_trial,
    layer_report,
    summary_report,
    trial_secs,
)

LAYERS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "conv2d": ("3x3 convolution, NHWC 56x56x64 -> 64", "conv2d_nhwc", (1, 56, 56, 64, 64, 3, 1, 1)),
    "depthwise": (
        "3x3 depthwise convolution, NHWC 112x112x32",
        "depthwise_conv2d_nhwc",
        (1, 112, 112, 32, 3, 1, 1),
    ),
    "dense": ("dense, 128x1024 times 1024x1024", "matmul", (128, 1024, 1024)),
    "softmax": ("softmax over the last axis of 512x1024", "softmax_mn", (512, 1024)),
}
"""What it is, and the function of ``tvm.s_tir.meta_schedule.testing.te_workload`` that makes it."""

METHODS = ("evolutionary", "droplet", "tvm-droplet")
AS_SHIPPED = "tvm-droplet-as-shipped"
AS_SHIPPED_TRIALS = 8
REMEASURED = "remeasured"
UNTUNED = "untuned"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--trials", type=int, default=96, help="measured trials of every run")
    parser.add_argument(
        "--checkpoints", nargs="*", type=int, default=[32, 64], help="trials to read off before"
    )
    parser.add_argument("--num-trials-per-iter", type=int, default=32, help="size of a batch")
    parser.add_argument(
        "--post-trials", type=int, help="those of --trials that tvm-droplet gives to PostOpt"
    )
    parser.add_argument(
        "--builder",
        choices=("cpu", "tvm"),
        default="cpu",
        help="for all methods: tvm_droplet_ms.measure.build.cpu_builder or TVM's LocalBuilder",
    )
    parser.add_argument("--rounds", type=int, default=10, help="of re-measuring the winners")
    parser.add_argument("--out", type=Path, default=Path("compare"), help="where results are kept")
    parser.add_argument(
        "--show-as-shipped", action="store_true", help="run post_optimization=True once, untouched"
    )
    parser.add_argument("--table-only", action="store_true", help="run nothing, print the tables")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    # What a child process is to do: a layer, a seed, and a method, AS_SHIPPED or REMEASURED.
    parser.add_argument("--run-one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.post_trials is None:
        args.post_trials = args.trials // 3
    if not 0 < args.post_trials < args.trials:
        parser.error(f"--post-trials is {args.post_trials}; expected 1 to --trials - 1")
    if any(not 0 < checkpoint <= args.trials for checkpoint in args.checkpoints):
        parser.error(f"--checkpoints is {args.checkpoints}; expected 1 to --trials each")
    args.checkpoints = sorted({*args.checkpoints, args.trials})
    return args


def settings_of(args: argparse.Namespace, layer: str) -> dict[str, Any]:
    """What must be equal for a finished run to count as a run of this command."""
    return {
        "layer": [LAYERS[layer][1], *LAYERS[layer][2]],
        "trials": args.trials,
        "num_trials_per_iter": args.num_trials_per_iter,
        "post_trials": args.post_trials,
        "builder": args.builder,
    }


def result_path(args: argparse.Namespace, layer: str, seed: int | str, method: str) -> Path:
    return Path(args.out, f"{layer}-seed{seed}-{method}.json")


def read_result(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """A finished run, None if there is none; SystemExit if it was made with other settings."""
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    if result["settings"] != settings:
        raise SystemExit(
            f"{path} was made with other settings, {result['settings']}, than this command's, "
            f"{settings}: give the same options again, or another --out"
        )
    return result


def write_result(path: Path, result: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result))
    partial.replace(path)


# ---- The parent: start one process after the other, and print. It does not import TVM. ----


def main() -> int:
    args = parse_arguments()
    if args.run_one:
        run_child(args, args.run_one[0], int(args.run_one[1]), args.run_one[2])
        return 0
    failures = 0
    if not args.table_only:
        # A stopped parent must not leave a child behind: subprocess.run kills it on an exception.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        args.out.mkdir(parents=True, exist_ok=True)
        failures = run_all(args)
    print_report(args)
    return 1 if failures else 0


def run_all(args: argparse.Namespace) -> int:
    """Run what is not finished yet; return how many children failed."""
    failures = 0
    if args.show_as_shipped:
        layer = "dense" if "dense" in args.layers else args.layers[0]
        failures += not run_process(args, layer, args.seeds[0], AS_SHIPPED)
    for i, layer in enumerate(args.layers):
        for j, seed in enumerate(args.seeds):
            first = (i + j) % len(args.methods)
            for method in args.methods[first:] + args.methods[:first]:
                failures += not run_process(args, layer, seed, method)
        failures += not run_process(args, layer, 0, REMEASURED)
    return failures


def run_process(args: argparse.Namespace, layer: str, seed: int, task: str) -> bool:
    """Run one task in a process of its own unless it is finished; return whether it is now."""
    path = result_path(args, layer, seed, task)
    done = read_result(path, settings_of(args, layer))
    if done and (task != REMEASURED or done["winners"] == winner_names(args, layer)):
        print(f"{path}: finished before", flush=True)
        return True
    log = path.with_suffix(".log")
    start = time.time()
    print(f"{time.strftime('%H:%M:%S')} {path.stem} ...", end=" ", flush=True)
    command = [sys.executable, __file__, *sys.argv[1:], "--run-one", layer, str(seed), task]
    with log.open("w") as output:
        status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
    if status == 0:
        print(f"{time.time() - start:.0f} s", flush=True)
        return True
    last = (log.read_text().strip().splitlines() or ["it printed nothing"])[-1]
    print(f"FAILED with exit status {status}, see {log}: {last}", flush=True)
    return False


def load_runs(args: argparse.Namespace, layer: str) -> Results:
    results = Results()
    for method in args.methods:
        for seed in args.seeds:
            path = result_path(args, layer, seed, method)
            run = read_result(path, settings_of(args, layer))
            if run:
                results.runs[method, seed] = run
    return results


def winner_names(args: argparse.Namespace, layer: str) -> list[list[Any]]:
    """Each winner of a layer: method, seed, checkpoint, and when its run was finished."""
    return [
        [method, seed, checkpoint, run["finished"]]
        for (method, seed), run in load_runs(args, layer).runs.items()
        for checkpoint in args.checkpoints
        if best_trial(run["trials"], checkpoint)
    ]


def print_report(args: argparse.Namespace) -> None:
    layers = {layer: load_runs(args, layer) for layer in args.layers}
    environments = []
    for layer, results in layers.items():
        environments += [run["environment"] for run in results.runs.values()]
        path = result_path(args, layer, 0, REMEASURED)
        remeasured = read_result(path, settings_of(args, layer))
        if remeasured:
            for (method, seed, checkpoint, _), kernel in zip(
                remeasured["winners"], remeasured["kernels"], strict=True
            ):
                results.kernels[method, seed, checkpoint] = kernel
    print()
    for environment in dict.fromkeys(environments):
        print(environment)
    print(
        f"{args.trials} trials a run in batches of {args.num_trials_per_iter}, builder "
        f"{args.builder}, {args.post_trials} of tvm-droplet's trials for PostOpt; a winner's time "
        f"is the median of {args.rounds} rounds.\n"
    )
    table = (args.methods, args.seeds, args.checkpoints, args.markdown)
    for layer, results in layers.items():
        print(layer_report(layer, LAYERS[layer][0], results, *table), "\n")
    print(summary_report(layers, *table), "\n")
    for layer in args.layers:
        for seed in args.seeds:
            path = result_path(args, layer, seed, AS_SHIPPED)
            as_shipped = read_result(path, settings_of(args, layer))
            if as_shipped:
                print(as_shipped_report(as_shipped), "\n")
    print(LEGEND)


# ---- The children. Each imports TVM and does one thing. ----


def run_child(args: argparse.Namespace, layer: str, seed: int, task: str) -> None:
    start = time.perf_counter()
    # The first TuneContext of a process imports it. No method's clock is to run meanwhile.
    import tvm.s_tir.tensor_intrin  # noqa: F401

    import_secs = time.perf_counter() - start
    result = remeasure(args, layer) if task == REMEASURED else tune(args, layer, seed, task)
    result |= {"settings": settings_of(args, layer), "finished": time.time()}
    result |= {"layer": layer, "import_secs": import_secs}
    write_result(result_path(args, layer, seed, task), result)


def layer_module(layer: str) -> Any:
    from tvm import IRModule, te
    from tvm.s_tir.meta_schedule.testing import te_workload

    _, function, shape = LAYERS[layer]
    func = te.create_prim_func(getattr(te_workload, function)(*shape))
    return IRModule({"main": func.with_attr("global_symbol", "main")})


def make_builder(args: argparse.Namespace) -> Any:
    from tvm.s_tir.meta_schedule.builder import LocalBuilder
    from tvm_droplet_ms.measure.build import cpu_builder

    return cpu_builder() if args.builder == "cpu" else LocalBuilder()


def environment() -> str:
    from importlib.metadata import version

    from tvm_droplet_ms.host import host_target, tvm_num_threads

    return (
        f"{host_target().attrs['mcpu']}, {os.cpu_count()} CPUs, {tvm_num_threads()} thread(s) in a "
        f"kernel, apache-tvm {version('apache-tvm')}, apache-tvm-ffi {version('apache-tvm-ffi')}"
    )


class TrialLog:
    """The trials of one run in order of measurement.

    A trial has ``run_secs`` (seconds; None if it failed), ``error``, ``elapsed`` (seconds from
    the start of the run to the arrival of its batch's results) and, if it was faster than all
    before it, ``trace``.
    """

    def __init__(self, mod: Any) -> None:
        from tvm.s_tir.meta_schedule.database import Workload

        self.workload = Workload(mod)
        self.trials: list[dict[str, Any]] = []
        self.start = time.perf_counter()

    def add(self, run_secs: Any, error: Any, trace: Any) -> None:
        from tvm.s_tir.meta_schedule.database import TuningRecord

        secs = None if run_secs is None else [float(value) for value in run_secs]
        trial = {"run_secs": secs, "error": None if error is None else str(error)}
        trial["elapsed"] = time.perf_counter() - self.start
        if trace is not None and trial_secs(trial) < min(
            map(trial_secs, self.trials), default=math.inf
        ):
            trial["trace"] = TuningRecord(trace, self.workload, secs).as_json()[0]
        self.trials.append(trial)


def recording_callback(log: TrialLog) -> Any:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback

    @derived_object
    class RecordTrials(PyMeasureCallback):
        def apply(self, scheduler, task_id, candidates, builds, results):  # type: ignore
            for candidate, result in zip(candidates, results, strict=True):
                log.add(result.run_secs, result.error_msg, candidate.sch.trace)

    return RecordTrials()


class PostOptTools:
    """Stands for what PostOpt's ``Space.run`` knows as ``ms``: a builder, a runner, and their types.

    ``Space.run`` makes a builder and a runner for every batch, builds all of it, then runs one
    candidate after the other and calls ``Space.save_log`` after each success.
    """

    def __init__(self, log: TrialLog, make_builder: Any, make_runner: Any) -> None:
        from tvm.s_tir import meta_schedule as ms

        self.log = log
        self.make_builder, self.make_runner = make_builder, make_runner
        self.builder = SimpleNamespace(
            LocalBuilder=self.open_builder, BuilderInput=ms.builder.BuilderInput
        )
        self.runner = SimpleNamespace(
            LocalRunner=self.open_runner, RunnerInput=ms.runner.RunnerInput
        )
        self.arg_info = ms.arg_info
        self.timeit = ms.Profiler.timeit

    def open_builder(self, **options: Any) -> Any:
        builder = self.make_builder(**options)

        def build(inputs: list[Any]) -> Any:
            with self.timeit("SendToBuilder"):
                results = builder.build(inputs)
            for result in results:
                if result.error_msg is not None:
                    self.log.add(None, result.error_msg, None)
            return results

        return SimpleNamespace(build=build)

    def open_runner(self, **options: Any) -> Any:
        runner = self.make_runner(**options)

        def run(inputs: list[Any]) -> Any:
            with self.timeit("SendToRunner"):
                futures = runner.run(inputs)
                results = [future.result() for future in futures]
            for result in results:
                if result.error_msg is not None:
                    self.log.add(None, result.error_msg, None)
            return futures

        return SimpleNamespace(run=run)

    @contextmanager
    def installed(self) -> Iterator[None]:
        from tvm.s_tir.meta_schedule.post_optimization import space

        save_log = space.Space.save_log

        def recorded(own: Any, path: str, record: Any, run_secs: Any) -> None:
            self.log.add(run_secs, None, record.trace)
            save_log(own, path, record, run_secs)

        with (
            mock.patch.object(space, "ms", self),
            mock.patch.object(space.Space, "save_log", recorded),
        ):
            yield


def tune(args: argparse.Namespace, layer: str, seed: int, method: str) -> dict[str, Any]:
    """Run one method once."""
    import numpy as np

    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.post_optimization import PostOpt
    from tvm_droplet_ms import DropletStrategy
    from tvm_droplet_ms.host import host_target

    mod, target = layer_module(layer), host_target()
    # What a stopped run has left here would make this one a continuation.
    work_dir = Path(args.out, "work", f"{layer}-seed{seed}-{method}")
    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir(parents=True)

    builder = make_builder(args)
    runner = ms.runner.LocalRunner(
        evaluator_config=ms.runner.EvaluatorConfig(number=3, repeat=1, min_repeat_ms=100)
    )
    log = TrialLog(mod)
    explored = args.trials
    tools = PostOptTools(log, lambda **_: builder, lambda **_: runner)
    if method == "tvm-droplet":
        explored -= args.post_trials
    elif method == AS_SHIPPED:
        explored = AS_SHIPPED_TRIALS
        tools = PostOptTools(log, ms.builder.LocalBuilder, ms.runner.LocalRunner)

    # The cost model draws from NumPy's generator below 100 samples, PostOpt from Python's.
    np.random.seed(seed)
    random.seed(seed)
    with ms.Profiler() as profiler, tools.installed():
        ms.tune_tir(
            mod,
            target,
            str(work_dir),
            max_trials_global=explored,
            num_trials_per_iter=args.num_trials_per_iter,
            builder=builder,
            runner=runner,
            cost_model="xgb",
            measure_callbacks=[recording_callback(log), *ms.MeasureCallback.create("default")],
            strategy=DropletStrategy() if method == "droplet" else "evolutionary",
            seed=seed,
            post_optimization=method == AS_SHIPPED,
        )
        if method == "tvm-droplet":
            # It counts from 1 and stops when it reaches this (Droplet.next_batch).
            PostOpt(str(work_dir), target, trials=args.post_trials + 1).run()
    profile = {name: float(secs) for name, secs in profiler.get().items()}
    return {
        "explored": explored,
        "trials": log.trials,
        "wall_secs": profile["Total"],
        "profile": profile,
        "environment": environment(),
    }


def remeasure(args: argparse.Namespace, layer: str) -> dict[str, Any]:
    """Rebuild the winners of a layer's runs, check what they compute, and time them in turns."""
    import numpy as np
    from tvm_ffi import structural_hash

    import tvm
    from tvm.s_tir import Schedule, Trace
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.builder import BuilderInput
    from tvm.s_tir.meta_schedule.utils import remove_build_dir
    from tvm_droplet_ms.host import host_target

    mod, target = layer_module(layer), host_target()
    winners = winner_names(args, layer)
    runs = load_runs(args, layer).runs
    # Winners that are one module are timed once, so that noise does not tell them apart.
    modules = {UNTUNED: mod}
    keys = []
    for method, seed, checkpoint, _ in winners:
        schedule = Schedule(mod)
        best = best_trial(runs[method, seed]["trials"], checkpoint)
        Trace.apply_json_to_schedule(best["trace"], schedule)
        keys.append(structural_hash(schedule.mod))
        modules[keys[-1]] = schedule.mod

    builds = make_builder(args).build([BuilderInput(m, target) for m in modules.values()])
    errors = {k: str(b.error_msg) for k, b in zip(modules, builds) if b.error_msg is not None}
    if UNTUNED in errors:
        raise RuntimeError(f"the untuned {layer} does not build: {errors[UNTUNED]}")
    libraries = {}
    for key, build in zip(modules, builds):
        if key not in errors:
            libraries[key] = tvm.runtime.load_module(build.artifact_path)
            remove_build_dir(build.artifact_path)

    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, info.shape)) for info in ArgInfo.from_entry_func(mod)]
    arrays = [rng.standard_normal(shape, dtype="float32") for shape in shapes[:-1]]
    arguments = [tvm.runtime.tensor(array) for array in arrays]
    outputs = {}
    for key, library in libraries.items():
        output = tvm.runtime.tensor(np.full(shapes[-1], np.nan, dtype="float32"))
        library["main"](*arguments, output)
        outputs[key] = output.numpy()
    expected = outputs[UNTUNED]
    for key, output in outputs.items():
        if not np.allclose(output, expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max()):
            errors[key] = "computes something else than the untuned module"

    arguments.append(tvm.runtime.tensor(np.empty(shapes[-1], dtype="float32")))
    timers = [
        (key, library.time_evaluator("main", tvm.cpu(), number=1, min_repeat_ms=100))
        for key, library in libraries.items()
        if key != UNTUNED and key not in errors
    ]
    samples: dict[Any, list[float]] = {key: [] for key, _ in timers}
    for i in range(args.rounds + 1):
        # Another one first in each round, so that none always follows the same one's caches.
        for key, timer in timers[i % len(timers) :] + timers[: i % len(timers)]:
            samples[key].append(timer(*arguments).mean)
    kernels = []
    for key in keys:
        kernel = {"error": errors.get(key), "median": None, "quartiles": None, "samples": []}
        if key not in errors:
            timed = samples[key][1:]
            kernel |= {"samples": timed, "median": float(np.median(timed))}
            kernel["quartiles"] = [float(q) for q in np.percentile(timed, [25, 75])]
        kernels.append(kernel)
    return {"winners": winners, "kernels": kernels}


if __name__ == "__main__":
    sys.exit(main())
