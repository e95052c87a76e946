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
"""Tunes a whole model once: a child of ``models``."""

import os
import shutil
import time
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ...tuning import tune
from ...tuning.compiled_model import CompiledModel
from ...tuning.frontends import import_model
from ...tuning.target import cpu_target
from ...tuning.threads import set_worker_threads
from .environment import environment
from .model_zoo import load_model
from .store import Task, serve


def tune_model(task: Task) -> dict[str, Any]:
    """Tune a model for some minutes, and keep its library.

    Returns
    -------
    result : dict[str, Any]
        ``library``, its path; ``secs``, the wall clock from the import on; ``trials``; ``parts``,
        seconds of each; ``kernels``, a row each; ``notes``; ``environment``.
    """
    settings = task.settings
    name = "-".join(str(settings[key]) for key in ("model", "method", "minutes", "seed"))
    work_dir = task.out / "work" / name.replace(" ", "_")
    # Files of a stopped run would make this run a continuation.
    shutil.rmtree(work_dir, ignore_errors=True)
    library = task.out / f"{name.replace(' ', '_')}.so"
    started = time.monotonic()
    model = load_model(settings["model"])
    if settings["method"] == "static_shape_tuning":
        found = _tune_with_tvm(model, str(work_dir), settings, started)
    else:
        result = tune(
            model,
            time_budget_s=60.0 * settings["minutes"] - (time.monotonic() - started),
            work_dir=work_dir,
            exact="winograd" not in settings["method"],
            seed=settings["seed"],
        )
        found = {
            "trials": result.trials,
            "parts": dict(result.secs_of),
            "deviation": result.deviation,
            "kernels": [vars(row) for row in result.kernels],
            "notes": list(result.notes),
            "compiled": result.compiled,
        }
    found["secs"] = time.monotonic() - started
    found.pop("compiled").export(library)
    return {**found, "library": library.name, "environment": environment()}


class OutOfTime(Exception):
    """The minutes of a baseline are over."""


def _tune_with_tvm(
    model: Any, work_dir: str, settings: dict[str, Any], started: float
) -> dict[str, Any]:
    """``relax.pipeline.static_shape_tuning_pipeline`` with its defaults, ended by the clock.

    The clock ends the tuning; applying and compiling come on top of it, to the pipeline's favour.
    """
    set_worker_threads(1)
    target = cpu_target("auto", 1)
    mod = import_model(model).mod
    deadline = started + 60.0 * settings["minutes"]
    trials, is_over = 0, False

    @derived_object
    class EndByClock(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
        def apply(self, _scheduler, _task, _candidates, _builds, results):  # type: ignore[no-untyped-def]
            nonlocal trials, is_over
            trials += len(results)
            is_over = time.monotonic() > deadline
            if is_over:
                raise OutOfTime

    prepare = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.pipeline.zero_pipeline(),
    ]
    with target:
        mod = tvm.transform.Sequential(prepare)(mod)
        os.makedirs(work_dir)
        database = ms.database.JSONDatabase(work_dir=work_dir)
        try:
            ms.relax_integration.tune_relax(
                mod,
                {},
                target,
                work_dir,
                max_trials_global=10**6,
                database=database,
                measure_callbacks=[*ms.MeasureCallback.create("default"), EndByClock()],
                seed=settings["seed"],
            )
        # TVM turns the callback's exception into one of its own. Any other one is a failed run.
        except Exception:
            if not is_over:
                raise
        compiled = CompiledModel(_apply(mod, database, target))
    return {"trials": trials, "compiled": compiled}


def _apply(mod: IRModule, database: ms.Database, target: Target) -> relax.VMExecutable:
    with database:
        mod = relax.transform.MetaScheduleApplyDatabase()(mod)
    return tvm.compile(mod, target)


if __name__ == "__main__":
    serve(tune_model)
