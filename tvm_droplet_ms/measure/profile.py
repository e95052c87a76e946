# SPDX-License-Identifier: Apache-2.0
"""Division of a tuning run's time into proposing, building, running and learning."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, replace
from types import TracebackType

import psutil

from tvm.s_tir.meta_schedule import Builder, Runner
from tvm.s_tir.meta_schedule.profiler import Profiler

from .builder import BuildStats
from .candidate_timer import RunStats

_DROPLET = ("Droplet/Generate", "Droplet/Notify")
"""Profiler scopes of ``DropletStrategy``. They include TVM's evolution if the strategy runs it."""

_EVOLUTION = "EvoSearch/"
"""Prefix of the scopes of TVM's evolution."""


class TuningProfile:
    """Divides the time of tuning, with any strategy, builder and runner.

    Tune inside this context manager; repeated entries add up. TVM's own scopes (``ms.Profiler``)
    give the time for proposing, building, running, learning and storing. The statistics of a
    ``WarmBuilder`` and a ``PromptRunner`` divide building and running further. Only the time inside
    the context counts, even if the builder and the runner were used before.

    Parameters
    ----------
    builder : Builder | None
        The builder to tune with.
    runner : Runner | None
        The runner to tune with.

    Examples
    --------
    >>> measure = fast_measure(target)
    >>> with TuningProfile(**measure) as profile:
    ...     ms.tune_tir(mod, target, work_dir, 128, **measure)
    >>> print(format_profile(profile.parts()))
    """

    def __init__(self, builder: Builder | None = None, runner: Runner | None = None) -> None:
        self._workers = getattr(builder, "max_workers", 1)
        build, run = getattr(builder, "stats", None), getattr(runner, "stats", None)
        self._stats = [one for one in (build, run) if isinstance(one, BuildStats | RunStats)]
        self._totals = [type(one)() for one in self._stats]
        self._scopes: dict[str, float] = defaultdict(float)
        self._start_secs: float | None = None
        self._wall_secs = 0.0

    def __enter__(self) -> "TuningProfile":
        if self._start_secs is None:
            self._start_secs = time.time() - psutil.Process().create_time()
        self._before = [replace(one) for one in self._stats]
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
        for total, now, before in zip(self._totals, self._stats, self._before, strict=True):
            for name in (field.name for field in fields(now) if field.name.endswith("_secs")):
                passed = getattr(now, name) - getattr(before, name)
                setattr(total, name, getattr(total, name) + passed)
        for scope, secs in self._profiler.get().items():
            self._scopes[str(scope)] += float(secs.value)

    def parts(self) -> dict[str, float]:
        """The seconds of each part, which add up to the time from the start of the process.

        Returns
        -------
        parts : dict[str, float]
            The parts by name, in the order in which a run goes through them.

            - "starting": from the start of the process to the first tuning.
            - "proposing": the search, TVM's evolution or ``DropletStrategy``.
            - "building", "exporting": the seconds of the build workers divided by their number;
              with a builder other than ``WarmBuilder``, "building" is all of its time.
            - "running": loading and timing; with a runner other than ``PromptRunner``, all of its
              time.
            - "waiting": the remaining time for which TVM waited for builder and runner.
            - "cost model", "database": learning and storing.
            - "other": the time that no scope covers, such as the proposals of another strategy.
        """
        return breakdown(
            self._scopes,
            start_secs=self._start_secs or 0.0,
            wall_secs=self._wall_secs,
            build=next((one for one in self._totals if isinstance(one, BuildStats)), None),
            workers=self._workers,
            run=next((one for one in self._totals if isinstance(one, RunStats)), None),
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
    """The seconds of each part of a run, as in ``TuningProfile.parts``.

    ``scopes``: the seconds of each scope of TVM's profiler. ``start_secs``, ``wall_secs``: the
    seconds before tuning, and of tuning. ``build``, ``run``: the statistics of a ``WarmBuilder``
    with ``workers`` processes and of a ``PromptRunner`` for this run; None for others.
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
    parts["waiting"] = max(0.0, measuring - known)
    parts["cost model"] = total("MeasureCallback/UpdateCostModel")
    parts["database"] = total("MeasureCallback/AddToDatabase")
    parts["other"] = start_secs + wall_secs - sum(parts.values())
    return parts
