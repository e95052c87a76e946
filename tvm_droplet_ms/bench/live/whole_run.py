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
"""Child process of ``whole``: a whole tuning run, and where its seconds went."""

import random
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import LocalBuilder, PyBuilder
from tvm.s_tir.meta_schedule.runner import LocalRunner

from ... import DropletStrategy
from ...host import host_target
from ...measure import BuildStats, RunStats, fast_measure
from ...profile import breakdown
from .environment import environment
from .layers import ALL_LAYERS, make_module
from .store import Task, serve
from .tuning import TrialLog

IMPORTING = "importing intrinsics"
"""The first step in each of LocalBuilder's workers."""


def timed_local_tools(log: Path) -> dict[str, Any]:
    """LocalBuilder and LocalRunner with default settings; their workers log their seconds.

    Parameters
    ----------
    log : Path
        Gets a line for each thing done: ``import``, ``build``, ``export``, ``load`` or ``time``,
        and its seconds.
    """
    path = str(log)

    # Nested functions reach the workers by value, which cannot import this module.
    def timed(name: str, function: Any) -> Any:
        def timed_function(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **kwargs)
            with open(path, "a") as file:
                file.write(f"{name} {time.perf_counter() - start}\n")
            return result

        return timed_function

    def build(mod: Any, target: Any, params: Any) -> Any:
        import importlib

        from tvm.s_tir.meta_schedule.builder.local_builder import default_build

        # default_build begins with this import.
        timed("import", importlib.import_module)("tvm.s_tir.tensor_intrin")
        return timed("build", default_build)(mod, target, params)

    def export(module: Any) -> str:
        from tvm.s_tir.meta_schedule.builder.local_builder import default_export

        path: str = timed("export", default_export)(module)
        return path

    def time_runner() -> None:
        import tvm
        from tvm.s_tir.meta_schedule.runner import local_runner

        tvm.runtime.load_module = timed("load", tvm.runtime.load_module)
        for name in ("default_alloc_argument", "default_run_evaluator"):
            setattr(local_runner, name, timed("time", getattr(local_runner, name)))

    return {
        "builder": LocalBuilder(f_build=build, f_export=export),
        "runner": LocalRunner(initializer=time_runner),
    }


def read_seconds(log: Path) -> dict[str, float]:
    """Sums of the seconds logged by the workers."""
    secs: defaultdict[str, float] = defaultdict(float)
    for line in log.read_text().splitlines():
        name, value = line.split()
        secs[name] += float(value)
    return secs


def tune(task: Task) -> dict[str, Any]:
    """Tune a layer once, with TVM's builder and runner or with those of fast_measure.

    Returns
    -------
    result : dict[str, Any]
        ``parts``, seconds that add up to ``total_secs``, which begins when the process was
        started; ``trials``, as ``Trial.as_json`` gives them; ``environment``.
    """
    settings, out, started = task.settings, task.out, task.started
    name = "-".join(str(settings[key]) for key in ("layer", "strategy", "method", "seed"))
    log, work_dir = out / f"{name}.secs", out / "work" / name
    # Files of a stopped run would make this run a continuation.
    log.write_text("")
    shutil.rmtree(work_dir, ignore_errors=True)
    mod, target = make_module(ALL_LAYERS[settings["layer"]]), host_target()
    tools = timed_local_tools(log) if settings["method"] == "tvm" else fast_measure(target)
    trials = TrialLog()
    # The cost model draws from NumPy's generator below 100 samples.
    np.random.seed(settings["seed"])
    random.seed(settings["seed"])
    with ms.Profiler() as profiler:
        builder = first_build_noted(tools["builder"], profiler)
        ms.tune_tir(
            mod,
            target,
            str(work_dir),
            max_trials_global=settings["trials"],
            num_trials_per_iter=settings["num_trials_per_iter"],
            builder=builder,
            runner=tools["runner"],
            measure_callbacks=[trials.callback(), *ms.MeasureCallback.create("default")],
            strategy=DropletStrategy() if settings["strategy"] == "droplet" else "evolutionary",
            seed=settings["seed"],
        )
    total_secs = time.time() - started
    # All before the first proposing: TVM has no scope for making the design space.
    start_secs = builder.first["time"] - started - proposing_secs(builder.first["scopes"])
    if settings["method"] == "tvm":
        secs = read_seconds(log)
        build = BuildStats(build_secs=secs["build"], export_secs=secs["export"])
        run = RunStats(load_secs=secs["load"], timing_secs=secs["time"])
    else:
        secs, build, run = {}, tools["builder"].stats, tools["runner"].stats
    workers = tools["builder"].max_workers
    parts = breakdown(
        scopes_of(profiler),
        start_secs=start_secs,
        wall_secs=total_secs - start_secs,
        build=build,
        workers=workers,
        run=run,
    )
    if settings["method"] == "tvm":
        parts[IMPORTING] = secs["import"] / workers
        parts["waiting"] -= parts[IMPORTING]
    recorded = [trial.as_json() for trial in trials.trials]
    result = {"parts": parts, "total_secs": total_secs, "trials": recorded}
    return result | {"environment": environment()}


def first_build_noted(builder: Any, profiler: ms.Profiler) -> Any:
    """A builder around another, with the time and the scopes of its first call in ``first``."""

    @derived_object
    class FirstBuildNoted(PyBuilder):  # type: ignore[misc]
        def __init__(self):  # type: ignore[no-untyped-def]
            super().__init__()
            self.first: dict[str, Any] = {}

        def build(self, build_inputs):  # type: ignore[no-untyped-def]
            if not self.first:
                self.first.update(time=time.time(), scopes=scopes_of(profiler))
            return builder.build(build_inputs)

    return FirstBuildNoted()  # type: ignore[no-untyped-call]


def scopes_of(profiler: ms.Profiler) -> dict[str, float]:
    """The seconds of each scope until now."""
    return {str(name): float(secs) for name, secs in profiler.get().items()}


def proposing_secs(scopes: dict[str, float]) -> float:
    """The seconds of proposing among the scopes of a profiler."""
    parts = breakdown(scopes, start_secs=0.0, wall_secs=0.0, build=None, workers=1, run=None)
    return parts["proposing"]


if __name__ == "__main__":
    serve(tune)
