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
"""Where the time of a tuning run goes."""

import time
from collections.abc import Mapping
from types import TracebackType

import psutil

from tvm.s_tir.meta_schedule import Builder, Runner
from tvm.s_tir.meta_schedule.profiler import Profiler

from .measure.builder import BuildStats
from .measure.runner import RunStats

_DROPLET = ("Droplet/Generate", "Droplet/Notify")
"""What ``DropletStrategy`` times, TVM's evolution within it included."""

_EVOLUTION = "EvoSearch/"
"""How the names of the scopes begin in which TVM's evolution spends its time."""


class TuningProfile:
    """Measures where the time of tuning goes, with any strategy, builder and runner.

    A context manager to tune in; entered more than once, it adds up. TVM's own scopes
    (``ms.Profiler``) say how long it proposes, builds, runs, learns and stores; a ``WarmBuilder``
    and a ``PromptRunner`` say what they did in that time.

    Parameters
    ----------
    builder : Builder | None
        The builder that is tuned with.
    runner : Runner | None
        The runner that is tuned with.

    Examples
    --------
    >>> measure = fast_measure(target)
    >>> with TuningProfile(**measure) as profile:
    ...     ms.tune_tir(mod, target, work_dir, 128, **measure)
    >>> print(format_profile(profile.parts()))
    """

    def __init__(self, builder: Builder | None = None, runner: Runner | None = None) -> None:
        self._builder = builder
        self._runner = runner
        self._scopes: dict[str, float] = {}
        self._start_secs: float | None = None
        self._wall_secs = 0.0

    def __enter__(self) -> "TuningProfile":
        if self._start_secs is None:
            self._start_secs = time.time() - psutil.Process().create_time()
        self._begin = time.perf_counter()
        self._profiler = Profiler()
        self._profiler.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._profiler.__exit__(kind, value, traceback)
        self._wall_secs += time.perf_counter() - self._begin
        for name, secs in self._profiler.get().items():
            scope = str(name)
            self._scopes[scope] = self._scopes.get(scope, 0.0) + float(secs.value)

    def parts(self) -> dict[str, float]:
        """The seconds of each part, which add up to the time from the start of the process.

        Returns
        -------
        parts : dict[str, float]
            The parts by name, in the order in which a run goes through them. "starting" is what
            passed between the start of the process and the first tuning. "building" and "exporting"
            are the seconds of the workers divided by their number, "running" is loading and timing;
            the rest of the time in which TVM waited for builder and runner is "waiting". With
            another builder or runner, all of its time is "building" or "running". "overlapping" is
            what was done while something else was, less than zero. What no scope covers is
            "other": the proposals too of a strategy that is neither TVM's evolution nor
            ``DropletStrategy``.
        """
        return breakdown(
            self._scopes,
            start_secs=self._start_secs or 0.0,
            wall_secs=self._wall_secs,
            build=getattr(self._builder, "stats", None),
            workers=getattr(self._builder, "max_workers", 1),
            run=getattr(self._runner, "stats", None),
        )


def breakdown(
    scopes: Mapping[str, float],
    *,
    start_secs: float,
    wall_secs: float,
    build: BuildStats | None,
    workers: int,
    run: RunStats | None,
) -> dict[str, float]:
    """Divide a run's time.

    Parameters
    ----------
    scopes : Mapping[str, float]
        The seconds of each scope of TVM's profiler.
    start_secs, wall_secs : float
        The seconds before tuning, and of tuning.
    build : BuildStats | None
        What the builder did, if it is one that says so.
    workers : int
        The number of its workers.
    run : RunStats | None
        What the runner did, if it is one that says so.

    Returns
    -------
    parts : dict[str, float]
        As ``TuningProfile.parts``.
    """

    def total(*names: str) -> float:
        return sum(scopes.get(name, 0.0) for name in names)

    evolution = sum(secs for name, secs in scopes.items() if name.startswith(_EVOLUTION))
    building, running = total("SendToBuilder"), total("SendToRunner", "JoinRunnerFutures")
    measuring = building + running
    parts = {"starting": start_secs, "proposing": total(*_DROPLET) or evolution}
    parts["building"], parts["exporting"] = building, 0.0
    if build is not None:
        parts["building"] = build.build_secs / workers
        parts["exporting"] = build.export_secs / workers
    parts["running"] = running if run is None else run.load_secs + run.timing_secs
    known = parts["building"] + parts["exporting"] + parts["running"]
    # More is known than was waited for where builds and runs overlap.
    parts["waiting"] = max(0.0, measuring - known)
    parts["overlapping"] = min(0.0, measuring - known)
    parts["cost model"] = total("MeasureCallback/UpdateCostModel")
    parts["database"] = total("MeasureCallback/AddToDatabase")
    parts["other"] = start_secs + wall_secs - sum(parts.values())
    return {name: secs for name, secs in parts.items() if secs or name != "overlapping"}
