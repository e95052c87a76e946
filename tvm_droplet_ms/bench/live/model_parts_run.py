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
"""Tunes a whole model with a part left out: a child of ``model_parts``."""

import shutil
import time
from typing import Any

from ...tuning.experience import Experience
from .environment import environment
from .leaving_out import LEAVING, tune_without
from .model_parts import run_name
from .model_zoo import load_model
from .store import Task, serve


def tune_variant(task: Task) -> dict[str, Any]:
    """Tune a model for some minutes, and keep its library.

    Returns
    -------
    result : dict[str, Any]
        ``library``, its path; ``secs``, the wall clock from the import on; ``trials``; ``parts``,
        seconds of each; ``kernels``, a row each; ``deviation``; ``notes``; ``environment``.
    """
    settings = task.settings
    name = run_name(settings)
    work_dir = task.out / "work" / name
    # Files of a stopped run would make this run a continuation.
    shutil.rmtree(work_dir, ignore_errors=True)
    started = time.monotonic()
    model = load_model(settings["model"])
    result = tune_without(
        model,
        LEAVING[settings["variant"]],
        60.0 * settings["minutes"] - (time.monotonic() - started),
        work_dir,
        settings["seed"],
        experience=Experience(**settings.get("experience", {})),
    )
    secs = time.monotonic() - started
    library = f"{name}.so"
    result.compiled.export(task.out / library)
    return {
        "library": library,
        "secs": secs,
        "trials": result.trials,
        "parts": dict(result.secs_of),
        "kernels": [vars(row) for row in result.kernels],
        "deviation": result.deviation,
        "notes": list(result.notes),
        "environment": environment(),
    }


if __name__ == "__main__":
    serve(tune_variant)
