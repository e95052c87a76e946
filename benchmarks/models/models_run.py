# SPDX-License-Identifier: Apache-2.0
"""Child process of ``models``: tunes a whole model once, or continues a run."""

import shutil
import time
from pathlib import Path
from typing import Any

from tvm_droplet_ms.tuning import tune

from ..store import Task, environment, serve
from ..zoo.quantized_models import load_any_model
from .compare_models import IN_BFLOAT16, run_name
from .models_tvm import tune_with_tvm


def tune_model(task: Task) -> dict[str, Any]:
    """Tune a model for some minutes, and save its library.

    Returns ``library``, its file name; ``secs``, the wall-clock seconds including the import;
    ``trials``; ``parts``, the seconds of each part; ``kernels``, a row for each kernel; ``notes``;
    ``environment``. If the run continues an earlier run, ``secs`` and ``trials`` are totals.
    """
    settings = task.settings
    name = run_name(settings)
    before = settings.get("before", {"name": None, "minutes": 0.0, "secs": 0.0, "trials": 0})
    work_dir = open_stage(task.out, name, before["name"])
    library = task.out / f"{name}.so"
    started = time.monotonic()
    deadline = started + 60.0 * (settings["minutes"] - before["minutes"])
    model = load_any_model(settings["model"])
    if settings["method"] == "static_shape_tuning":
        found = tune_with_tvm(model, work_dir, deadline, settings["seed"], settings["threads"])
    else:
        in_halves = settings["method"] == IN_BFLOAT16
        result = tune(
            model,
            time_budget_s=deadline - time.monotonic(),
            work_dir=work_dir,
            exact=settings["method"] != "tune with winograd",
            precision="bfloat16" if in_halves else "float32",
            stop=None if settings["method"] == "tune to the end" else "auto",
            seed=settings["seed"],
            threads=settings["threads"],
            **settings["files"],
        )
        found = {
            "trials": result.trials,
            "parts": dict(result.secs_of),
            "deviation": result.deviation,
            "kernels": [vars(row) for row in result.kernels],
            "notes": list(result.notes),
            "compiled": result.compiled,
        }
    found["secs"] = before["secs"] + time.monotonic() - started
    found["trials"] += before["trials"]
    found.pop("compiled").export(library)
    return {**found, "library": library.name, "environment": environment()}


def open_stage(out: Path, name: str, before: str | None) -> Path:
    """Prepare the work directory of a run: a new one, or a copy of the continued run's directory.

    It is a copy, because a stopped stage must restart from the state that the earlier run left.
    ``out``: the directory of the results. ``name``: the run's name. ``before``: the name of the run
    that this run continues; None for a new run. Raises ``SystemExit`` if the earlier run's work
    directory is missing.
    """
    work_dir = out / "work" / name
    # Otherwise this run would continue from the files of a stopped run.
    shutil.rmtree(work_dir, ignore_errors=True)
    if before is not None:
        earlier = out / "work" / before
        if not earlier.is_dir():
            raise SystemExit(
                f"{earlier} is missing: {name} goes on with that run; remove {before}.json to "
                "repeat it, or give another --out"
            )
        shutil.copytree(earlier, work_dir, ignore=shutil.ignore_patterns("*.so"))
    return work_dir


if __name__ == "__main__":
    serve(tune_model)
