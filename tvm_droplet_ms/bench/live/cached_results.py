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
"""The runs of ``cached``, of all code variants that share a directory. Imports no TVM."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .comparison import Run
from .trials import Trial, best_trial


@dataclass(frozen=True)
class CachedRun:
    """A finished run.

    Parameters
    ----------
    variant : str
        "label/method".
    layer : str
        The layer.
    seed : int
        The seed.
    workload : str
        The key of the layer's module.
    source : str
        Digest of the code that made it.
    measured : int
        The modules that the cache did not know.
    run : Run
        Its trials and its seconds.
    """

    variant: str
    layer: str
    seed: int
    workload: str
    source: str
    measured: int
    run: Run

    def winner(self, checkpoint: int) -> Trial | None:
        """The first trials' best by its record; None if all of them failed."""
        return best_trial(self.run.trials, checkpoint)


def read_runs(directory: Path, wanted: Mapping[str, Any]) -> list[CachedRun]:
    """The runs of all labels.

    Parameters
    ----------
    directory : Path
        ``--out``, with a directory for each label.
    wanted : Mapping[str, Any]
        Settings that a run must have: for each name its value, or a list of the values accepted.

    Returns
    -------
    runs : list[CachedRun]
        Sorted by variant, layer and seed.
    """
    runs = []
    for path in sorted(directory.glob("*/*.json")):
        content = json.loads(path.read_text())
        settings = content["settings"]
        if "label" in settings and _is_wanted(settings, wanted):
            runs.append(
                CachedRun(
                    f"{settings['label']}/{settings['method']}",
                    settings["layer"],
                    settings["seed"],
                    content["workload"],
                    content["source"],
                    content["measured"],
                    Run.from_json(content),
                )
            )
    return sorted(runs, key=lambda run: (run.variant, run.layer, run.seed))


def winners_of(runs: Sequence[CachedRun], checkpoints: Sequence[int]) -> dict[str, set[str]]:
    """For each workload the modules that won a run at a checkpoint."""
    found: dict[str, set[str]] = {run.workload: set() for run in runs}
    for run in runs:
        for checkpoint in checkpoints:
            winner = run.winner(checkpoint)
            if winner is not None and winner.module is not None:
                found[run.workload].add(winner.module)
    return found


def _is_wanted(settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for name, value in wanted.items():
        accepted = value if isinstance(value, list) else [value]
        if settings.get(name) not in accepted:
            return False
    return True
