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
"""The work of compare_live.py's processes: tune a layer with one method, re-measure winners."""

import math
import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from _compare_report import BEFORE, TRANSFER, XGB_TRANSFER, trial_secs
from tvm_ffi import structural_hash

import tvm
from tvm import IRModule, te
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import Builder, BuilderInput, LocalBuilder
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm.s_tir.meta_schedule.post_optimization import PostOpt, space
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.s_tir.meta_schedule.utils import remove_build_dir
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.host import host_target, tvm_num_threads
from tvm_droplet_ms.measure import WarmBuilder

AS_SHIPPED = "tvm-droplet-as-shipped"
"""TVM's droplet with the builder and the runner that it makes for itself."""
_DROPLETS = ("droplet", BEFORE, TRANSFER)

AS_SHIPPED_TRIALS = 8
"""Trials of evolutionary search before the droplet that runs as it ships."""


def tune(
    settings: dict[str, Any], seed: int, method: str, work_dir: Path, model: Path | None
) -> dict[str, Any]:
    """Tune the layer of ``settings`` once with one method, in an empty work directory.

    ``model`` is the file of the cost model that the method begins with.
    """
    # What a stopped run has left there would make this one a continuation.
    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir(parents=True)
    mod, target = make_module(settings), host_target()
    builder = _builder(settings)
    runner = LocalRunner(evaluator_config=EvaluatorConfig(number=3, repeat=1, min_repeat_ms=100))
    log = TrialLog(mod)
    explore_trials = settings["trials"]
    if method == AS_SHIPPED:
        explore_trials = AS_SHIPPED_TRIALS
        tools = PostOptTools(log, LocalBuilder, LocalRunner)
    else:
        explore_trials -= settings["post_trials"] if method == "tvm-droplet" else 0
        tools = PostOptTools(log, lambda **_: builder, lambda **_: runner)

    # The cost model draws from NumPy's generator below 100 samples, PostOpt from Python's.
    np.random.seed(seed)
    random.seed(seed)
    with ms.Profiler() as profiler, tools.installed():
        ms.tune_tir(
            mod,
            target,
            str(work_dir),
            max_trials_global=explore_trials,
            num_trials_per_iter=settings["num_trials_per_iter"],
            builder=builder,
            runner=runner,
            cost_model="xgb" if model is None else _cost_model(method, model),
            measure_callbacks=[_recorder(log), *ms.MeasureCallback.create("default")],
            strategy=DropletStrategy() if method in _DROPLETS else "evolutionary",
            seed=seed,
            post_optimization=method == AS_SHIPPED,
        )
        if method == "tvm-droplet":
            # It counts from 1 and stops when it reaches `trials` (Droplet.next_batch).
            PostOpt(str(work_dir), target, trials=settings["post_trials"] + 1).run()
    profile = {str(name): float(secs) for name, secs in profiler.get().items()}
    return {
        "explore_trials": explore_trials,
        "trials": log.trials,
        "wall_secs": profile["Total"],
        "profile": profile,
        "environment": f"{target.attrs['mcpu']}, {os.cpu_count()} CPUs, {tvm_num_threads()} "
        f"thread(s) in a kernel, apache-tvm {version('apache-tvm')}, apache-tvm-ffi "
        f"{version('apache-tvm-ffi')}",
    }


def _cost_model(method: str, model: Path) -> CostModel:
    if method == XGB_TRANSFER:
        # Its warm-up is what would keep it from saying what it knows.
        own = ms.cost_model.XGBModel(num_warmup_samples=0)
        own.load(str(model))
        return own
    # The checkout of `droplet-before` has none.
    from tvm_droplet_ms.cost_model import TransferModel

    return TransferModel.from_file(model)


def make_module(settings: dict[str, Any]) -> IRModule:
    function, *shape = settings["layer"]
    func = te.create_prim_func(getattr(te_workload, function)(*shape))
    return IRModule({"main": func.with_attr("global_symbol", "main")})


def _builder(settings: dict[str, Any]) -> Builder:
    return WarmBuilder() if settings["builder"] == "warm" else LocalBuilder()


class TrialLog:
    """The trials of one run in order of measurement.

    A trial has ``run_secs`` (seconds; None if it failed), ``error``, ``elapsed`` (seconds from
    the start of the run to the arrival of its result, or of its batch's) and, if it was faster
    than all before it, ``trace``.
    """

    def __init__(self, mod: IRModule) -> None:
        self.workload = Workload(mod)
        self.trials: list[dict[str, Any]] = []
        self.start = time.perf_counter()
        self._best_secs = math.inf

    def add(self, run_secs: Any, error: Any, trace: Trace | None) -> None:
        secs = None if run_secs is None else [float(value) for value in run_secs]
        trial: dict[str, Any] = {
            "run_secs": secs,
            "error": None if error is None else str(error),
            "elapsed": time.perf_counter() - self.start,
        }
        if trial_secs(trial) < self._best_secs:
            self._best_secs = trial_secs(trial)
            trial["trace"] = TuningRecord(trace, self.workload, secs).as_json()[0]
        self.trials.append(trial)


def _recorder(log: TrialLog) -> Any:
    @derived_object
    class RecordTrials(PyMeasureCallback):
        def apply(self, scheduler, task_id, candidates, builds, results):  # type: ignore
            for candidate, result in zip(candidates, results, strict=True):
                log.add(result.run_secs, result.error_msg, candidate.sch.trace)

    return RecordTrials()


class PostOptTools:
    """What PostOpt's ``Space.run`` finds under the name ``ms``, with its trials written down.

    ``Space.run`` makes a builder and a runner for every batch, builds all of it, then runs one
    candidate after the other and calls ``Space.save_log`` after each success.
    """

    def __init__(self, log: TrialLog, make_builder: Any, make_runner: Any) -> None:
        self._log = log
        self._make_builder, self._make_runner = make_builder, make_runner
        self.builder = SimpleNamespace(**vars(ms.builder) | {"LocalBuilder": self._new_builder})
        self.runner = SimpleNamespace(**vars(ms.runner) | {"LocalRunner": self._new_runner})
        self.arg_info = ms.arg_info

    @contextmanager
    def installed(self) -> Iterator[None]:
        save_log = space.Space.save_log

        def log_and_save(own: space.Space, path: str, record: TuningRecord, run_secs: Any) -> None:
            self._log.add(run_secs, None, record.trace)
            save_log(own, path, record, run_secs)

        with (
            mock.patch.object(space, "ms", self),
            mock.patch.object(space.Space, "save_log", log_and_save),
        ):
            yield

    def _new_builder(self, **options: Any) -> SimpleNamespace:
        builder = self._make_builder(**options)

        def build(inputs: list[Any]) -> Any:
            with ms.Profiler.timeit("SendToBuilder"):
                results = builder.build(inputs)
            self._add_failures(results)
            return results

        return SimpleNamespace(build=build)

    def _new_runner(self, **options: Any) -> SimpleNamespace:
        runner = self._make_runner(**options)

        def run(inputs: list[Any]) -> Any:
            with ms.Profiler.timeit("SendToRunner"):
                futures = runner.run(inputs)
                results = [future.result() for future in futures]
            self._add_failures(results)
            return futures

        return SimpleNamespace(run=run)

    def _add_failures(self, results: Sequence[Any]) -> None:
        for result in results:
            if result.error_msg is not None:
                self._log.add(None, result.error_msg, None)


def remeasure(settings: dict[str, Any], traces: Sequence[Any], rounds: int) -> list[dict[str, Any]]:
    """Rebuild winners from their traces, check what they compute, and time them in turns.

    Parameters
    ----------
    traces : Sequence
        The JSON of the winners' traces. Those that give the same module are timed as one.
    rounds : int
        How often each is timed, on newly allocated buffers, after one round that does not count.

    Returns
    -------
    kernels : list of dict
        For each trace ``error`` (None if it is right), ``median``, ``quartiles`` (the first and
        the third) and ``samples``, in seconds.
    """
    untuned = make_module(settings)
    modules = {}
    hashes = []
    for trace in traces:
        schedule = Schedule(untuned)
        Trace.apply_json_to_schedule(trace, schedule)
        hashes.append(structural_hash(schedule.mod))
        modules[hashes[-1]] = schedule.mod
    builder = _builder(settings)
    (reference,), (error,) = _build(builder, [untuned])
    if reference is None:
        raise RuntimeError(f"the layer {settings['layer']} does not build untuned: {error}")
    libraries, errors = _build(builder, list(modules.values()))

    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, info.shape)) for info in ArgInfo.from_entry_func(untuned)]
    inputs = [tvm.runtime.tensor(rng.standard_normal(s, dtype="float32")) for s in shapes[:-1]]
    output = tvm.runtime.empty(shapes[-1], "float32")
    reference["main"](*inputs, output)
    expected = output.numpy()
    timers = {}
    for i, (key, library) in enumerate(zip(modules, libraries, strict=True)):
        if library is None:
            continue
        output.copyfrom(np.full(shapes[-1], np.nan, dtype="float32"))
        library["main"](*inputs, output)
        if np.allclose(output.numpy(), expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max()):
            timers[key] = library.time_evaluator("main", tvm.cpu(), number=1, min_repeat_ms=100)
        else:
            errors[i] = "computes something else than the untuned layer"

    samples: dict[int, list[float]] = {key: [] for key in timers}
    order = list(timers)
    placements = []
    for i in range(rounds + 1):
        # Some kernels take twice as long where their buffers happen to conflict in a cache, so
        # every round has buffers of its own, and those before stay where they are.
        placements.append([tvm.runtime.tensor(array) for array in [*inputs, output]])
        for key in order:
            secs = timers[key](*placements[-1]).mean
            if i > 0:
                samples[key].append(secs)
        # Another one begins the next round.
        order.append(order.pop(0))
    kernels = {}
    for key, error in zip(modules, errors, strict=True):
        timed = samples.get(key)
        q1, median, q3 = np.percentile(timed, [25, 50, 75]).tolist() if timed else [None] * 3
        times = {"median": median, "quartiles": [q1, q3], "samples": timed}
        kernels[key] = {"error": error, **times}
    return [kernels[key] for key in hashes]


def _build(builder: LocalBuilder, mods: list[IRModule]) -> tuple[list[Any], list[str | None]]:
    """Build modules for the host: the libraries and the errors, None in one or the other."""
    target = host_target()
    libraries, errors = [], []
    for result in builder.build([BuilderInput(mod, target) for mod in mods]):
        errors.append(None if result.error_msg is None else str(result.error_msg))
        libraries.append(None if errors[-1] else tvm.runtime.load_module(result.artifact_path))
        if errors[-1] is None:
            remove_build_dir(result.artifact_path)
    return libraries, errors
