# SPDX-License-Identifier: Apache-2.0
"""What a model's run wrote of the model as a whole: its latencies, and its kernels in it.

Imports no TVM.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...display.displays import EVENTS
from ...session.records import parse_line, read_lines


@dataclass
class ModelTimes:
    """The times of a model, or of one of its shapes.

    - ``shapes``: the shapes of its inputs by name.
    - ``before_ms``, ``before_quartiles``, ``before``: the latency of the first executable of all
      runs, its lower and upper quartile, and its kernels with the microseconds of all their calls.
    - ``ms``, ``quartiles``, ``kernels``: the same for the last result; None and empty if no run
      finished.
    - ``reference``, ``deviation``: the program that the outputs were compared with, and how far
      they are from its outputs.
    - ``beside_ms``: latencies by name, timed in turns with the reference.
    - ``course``: the latency over the seconds of all runs; None if the model has several shapes.
    """

    shapes: Mapping[str, Any]
    before_ms: float | None = None
    before_quartiles: list[float] = field(default_factory=list)
    before: list[dict[str, Any]] = field(default_factory=list)
    ms: float | None = None
    quartiles: list[float] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    reference: str = ""
    deviation: float = 0.0
    why_ended: str = ""
    notes: tuple[str, ...] = ()
    beside_ms: dict[str, float] = field(default_factory=dict)
    course: "LatencyCourse | None" = None

    @property
    def is_clear(self) -> bool:
        """Whether the quartiles before and after do not overlap."""
        if not self.quartiles or not self.before_quartiles:
            return False
        (low, high), (before_low, before_high) = self.quartiles, self.before_quartiles
        return high < before_low or before_high < low


@dataclass
class LatencyCourse:
    """The latency of a model over the seconds of its runs, one after the other.

    - ``estimates``: the seconds and the milliseconds from the first executable on, after each gain
      of a kernel, and at the end: what was measured first, less what all calls of each kernel
      gained over its time inside the first executable.
    - ``measured``: the seconds and the milliseconds of the results.
    """

    estimates: list[tuple[float, float]] = field(default_factory=list)
    measured: list[tuple[float, float]] = field(default_factory=list)
    _kernels: dict[str, tuple[int, float]] = field(default_factory=dict, repr=False)
    _gained_us: dict[str, float] = field(default_factory=dict, repr=False)
    _started: Any = None
    _before: float = 0.0
    _secs: float = 0.0

    def tell(self, event: Mapping[str, Any]) -> None:
        """Follow the next event of a run; of the executables, the first of all runs counts."""
        kind = event["event"]
        started, secs = event["started"], float(event["secs"])
        if started != self._started:
            self._started, self._before, self._secs = started, self._before + self._secs, 0.0
        self._secs = max(self._secs, secs)
        now = self._before + secs
        if kind == "first" and not self.estimates:
            rows = _kernels(event)
            self._kernels = {row["name"]: (row["calls"], row["us"]) for row in rows}
            self.estimates.append((now, _latency(event)[0]))
        elif kind == "result":
            self.measured.append((now, _latency(event)[0]))
        elif kind == "batch" and self.estimates and event["best_us"] is not None:
            self._gain(now, str(event["task"]), float(event["best_us"]))

    def _gain(self, now: float, kernel: str, best_us: float) -> None:
        calls, first_us = self._kernels.get(kernel, (0, 0.0))
        before = self._gained_us.get(kernel, 0.0)
        self._gained_us[kernel] = max(before, first_us - calls * best_us)
        ms = self.estimates[0][1] - 1e-3 * math.fsum(self._gained_us.values())
        # The last point is only there to mark the time: the next one of the same latency moves it.
        if len(self.estimates) > 1 and self.estimates[-2][1] == self.estimates[-1][1] == ms:
            self.estimates.pop()
        self.estimates.append((now, ms))


def read_models(work_dir: str | os.PathLike[str]) -> list[ModelTimes]:
    """Read the events of a model, with one entry for each of its shapes.

    Invalid lines, such as a torn line, are skipped. Empty for a kernel.
    """
    found: dict[str, ModelTimes] = {}
    course = LatencyCourse()
    for line in read_lines(Path(work_dir) / EVENTS):
        with suppress(ValueError, TypeError, LookupError, AttributeError):
            event = parse_line(line)
            if event.get("event", "") in ("first", "batch", "result") and "started" in event:
                course.tell(event)
            if (tell := _TELL.get(event["event"])) is not None:
                key = json.dumps(event["shapes"])
                model = found.get(key) or ModelTimes(dict(event["shapes"]))
                tell(model, event)
                found[key] = model
    if len(found) == 1 and course.estimates:
        next(iter(found.values())).course = course
    return list(found.values())


def _tell_first(model: ModelTimes, event: Mapping[str, Any]) -> None:
    if model.before_ms is None:
        model.before = _kernels(event)
        model.before_ms, model.before_quartiles = _latency(event)


def _tell_result(model: ModelTimes, event: Mapping[str, Any]) -> None:
    model.reference, model.deviation = str(event["reference"]), float(event["deviation"])
    model.why_ended, model.notes = str(event["why_ended"]), tuple(map(str, event["notes"]))
    model.kernels = _kernels(event)
    model.ms, model.quartiles = _latency(event)


def _tell_beside(model: ModelTimes, event: Mapping[str, Any]) -> None:
    latencies = event["milliseconds"].items()
    model.beside_ms = {str(name): float(each["median"]) for name, each in latencies}


_TELL: dict[str, Callable[[ModelTimes, Mapping[str, Any]], None]] = {
    "first": _tell_first,
    "result": _tell_result,
    "beside": _tell_beside,
}


def _latency(event: Mapping[str, Any]) -> tuple[float, list[float]]:
    """The median and the two quartiles of an event, in milliseconds."""
    found = event["milliseconds"]
    low, high = map(float, found["quartiles"])
    return float(found["median"]), [low, high]


def _kernels(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The kernels of an event; see ``KernelRow``."""
    return [
        {
            "name": str(row["name"]),
            "workload": str(row["workload"]),
            "us": 1e6 * float(row["secs"]),
            "calls": int(row["weight"]),
            "gflops": float(row["gflops"]) or None,
            "roofline_share": float(row["roofline_share"]),
            "origin": str(row["schedule"]),
        }
        for row in event["kernels"]
    ]
