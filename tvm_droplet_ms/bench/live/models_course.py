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
"""The runs of one method on one model, one for each number of minutes. Imports no TVM."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .model_methods import METHODS, TuneMethod
from .store import ResultStore

Run = dict[str, Any]


def course(
    store: ResultStore,
    model: str,
    method: str,
    seed: int,
    minutes: Sequence[float],
    is_continued: bool,
    experience: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, Run | None]]:
    """Read or make the runs of a method.

    Parameters
    ----------
    store : ResultStore
        Where they are kept.
    model, method, seed : str, str, int
        The runs' settings.
    minutes : Sequence[float]
        The minutes of wall clock of each run.
    is_continued : bool
        Whether a run goes on with the one before it, with its work directory, for the difference
        of their minutes. TVM's methods begin anew all the same: their task scheduler would begin
        with its first task again.
    experience : Mapping[str, str] | None
        Files that ``tune`` takes as `prior` and `known`; None for those of the package.

    Yields
    ------
    run : tuple[str, dict[str, Any] | None]
        The run's name in tables, and its result; None if there is none, or none of the run that it
        goes on with.
    """
    is_continued = is_continued and isinstance(METHODS[method], TuneMethod)
    before: Run | None = None
    for index, most in enumerate(sorted(set(minutes)) if is_continued else minutes):
        settings: Run = {"model": model, "method": method, "minutes": most, "seed": seed}
        if experience:
            settings["experience"] = dict(experience)
        if is_continued and index > 0:
            if before is None:
                yield f"{method}, {most:g} min continued, seed {seed}", None
                continue
            settings["before"] = _before(before)
        run = store.get(run_name(settings), "models_run", settings)
        minutes_text = " + ".join(f"{stage:g}" for stage in stages(settings))
        yield f"{method}, {minutes_text} min, seed {seed}", run
        before = run


def stages(settings: Run) -> list[float]:
    """The minutes of each run of a course, up to the one with these settings."""
    before = settings.get("before")
    if before is None:
        return [settings["minutes"]]
    return [*before["stages"], settings["minutes"] - sum(before["stages"])]


def run_name(settings: Run) -> str:
    """The name of a run's files."""
    minutes = "+".join(map(str, stages(settings)))
    parts = (settings["model"], settings["method"], minutes, settings["seed"])
    return "-".join(map(str, parts)).replace(" ", "_")


def _before(run: Run) -> Run:
    """What a run needs to know of the one that it goes on with.

    Seconds and trials are among it: a run that was made again makes those that went on with it
    worthless.
    """
    return {
        "name": run_name(run["settings"]),
        "stages": stages(run["settings"]),
        "secs": run["secs"],
        "trials": run["trials"],
    }
