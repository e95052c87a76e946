# SPDX-License-Identifier: Apache-2.0
"""Child process of ``searches``: tunes a layer once with one method."""

import random
import shutil
import time
from typing import Any

import numpy as np

from tvm import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import fast_measure
from tvm_droplet_ms.search_strategy.published.candidates import mean, valid_secs

from ..store import Task, environment, serve
from .comparison import Trial
from .layers import ALL_LAYERS, make_module
from .methods import METHODS


def trace_json(trace: Trace) -> Any:
    """A trace as JSON-compatible Python values, which ``Trace.as_json`` does not always return."""
    return TuningRecord(trace, Workload(IRModule()), []).as_json()[0]


class TrialLog:
    """The trials of a run in the order of measurement."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self._begun = time.perf_counter()
        self._best = float("inf")

    def add(self, run_secs: Any, error: Any, trace: Trace) -> None:
        """Add the result of a candidate."""
        repeats = valid_secs(run_secs)
        secs = mean(repeats) if repeats else None
        is_best = secs is not None and secs < self._best
        self._best = secs if is_best and secs is not None else self._best
        self.trials.append(
            Trial(
                secs,
                time.perf_counter() - self._begun,
                None if error is None else str(error).strip().splitlines()[-1],
                trace_json(trace) if is_best else None,
            )
        )

    def callback(self) -> Any:
        """A measure callback that adds the trials of each batch."""
        add = self.add

        @derived_object
        class RecordTrials(PyMeasureCallback):  # type: ignore[misc]
            def apply(self, scheduler, task_id, candidates, builds, results):  # type: ignore
                for candidate, result in zip(candidates, results, strict=True):
                    add(result.run_secs, result.error_msg, candidate.sch.trace)

        return RecordTrials()


def tune(task: Task) -> dict[str, Any]:
    """Tune the layer of a task with its method.

    Returns ``trials``, as fields of ``Trial``; ``wall_secs``, the seconds of ``tune_tir``;
    ``profile``, the seconds of each scope of ``ms.Profiler``; ``environment``.
    """
    settings = task.settings
    method, seed, files = METHODS[settings["method"]], settings["seed"], settings["files"]
    target = host_target(settings.get("mcpu"))
    work_dir = task.out / "work" / f"{settings['layer']}-{settings['method']}-{seed}"
    # Otherwise the database of a stopped run would be resumed.
    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir(parents=True)
    # TVM's cost model draws from NumPy's global generator during its warm-up.
    np.random.seed(seed)
    random.seed(seed)
    log = TrialLog()
    with ms.Profiler() as profiler:
        ms.tune_tir(
            make_module(ALL_LAYERS[settings["layer"]]),
            target,
            str(work_dir),
            max_trials_global=settings["trials"],
            num_trials_per_iter=settings["batch"],
            cost_model=method.cost_model(target, **files),
            measure_callbacks=[log.callback(), *ms.MeasureCallback.create("default")],
            strategy=method.strategy(**files),
            seed=seed,
            **fast_measure(target),
        )
    profile = {str(name): float(secs) for name, secs in profiler.get().items()}
    return {
        "trials": [vars(trial) for trial in log.trials],
        "wall_secs": profile["Total"],
        "profile": profile,
        "environment": environment(),
    }


if __name__ == "__main__":
    serve(tune)
