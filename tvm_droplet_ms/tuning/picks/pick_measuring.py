# SPDX-License-Identifier: Apache-2.0
"""Measures the schedules that are worth it before any search, and the unscheduled kernel.

What the cost model predicts best is not always fast: of a convolution of 12 channels its first
choice took 78 ms and its third 3.3, and of a long group norm it took 515 ms where the unscheduled
kernel takes 6.5.
"""

import math
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult
from tvm.s_tir.meta_schedule.runner import RunnerFuture, RunnerInput
from tvm.target import Target

from ...measure.failures import is_machinery_failure
from ...search_strategy.logger import logger
from ...search_strategy.published.candidates import mean, valid_secs

_DEVICE = "cpu"


class Builds(Protocol):
    """Builds candidates, as TVM's ``Builder``."""

    def build(self, build_inputs: Sequence[BuilderInput], /) -> Sequence[BuilderResult]:
        """The artefact of each, or why there is none."""

    def end_by(self, moment: float, /) -> None:
        """What is built at that moment fails, and so does what would begin later."""


class Runs(Protocol):
    """Times candidates, as TVM's ``Runner``."""

    def run(self, runner_inputs: Sequence[RunnerInput], /) -> Sequence[RunnerFuture]:
        """The future times of each."""

    def end_by(self, moment: float, /) -> None:
        """What is timed at that moment fails, and so does what would begin later."""


@dataclass(frozen=True)
class Finalists:
    """The schedules of a workload to measure.

    ``traces``: their traces; the first is the one that it has. The unscheduled kernel comes on top.
    """

    mod: IRModule
    traces: tuple[Trace, ...]


@dataclass(frozen=True)
class Fastest:
    """The fastest measured schedule of a workload.

    ``trace``: its trace; empty for the unscheduled kernel. ``secs``: its mean time in seconds.
    """

    trace: Trace
    secs: float


@dataclass(frozen=True)
class _Entry:
    """A schedule to build and to run."""

    task: int
    trace: Trace
    mod: IRModule


def measure_finalists(
    tasks: Sequence[Finalists], target: Target, builder: Builds, runner: Runs
) -> list[Fastest | None]:
    """Build and time schedules.

    ``tasks``: those of some workloads: all are built before the first is timed. ``builder``,
    ``runner``: a runner that gives up on what takes many times the best of its workload saves the
    most. Returns the fastest of each workload; None where none could be measured, or the machine
    failed to measure one: the time was over, or a disk full. The best of a part may be slow.
    """
    entries = [entry for place, task in enumerate(tasks) for entry in _entries(place, task)]
    built = builder.build([BuilderInput(entry.mod, target) for entry in entries])
    failures = Counter[str]()
    unfinished: set[int] = set()
    inputs, running = [], []
    for entry, result in zip(entries, built, strict=True):
        if result.artifact_path is None:
            failures[_reason(result.error_msg)] += 1
            if is_machinery_failure(result.error_msg):
                unfinished.add(entry.task)
            continue
        info = ArgInfo.from_entry_func(entry.mod, remove_preproc=True)
        inputs.append(RunnerInput(str(result.artifact_path), _DEVICE, info))
        running.append(entry)
    fastest: list[Fastest | None] = [None] * len(tasks)
    for entry, future in zip(running, runner.run(inputs), strict=True):
        timed = future.result()
        secs = valid_secs(timed.run_secs)
        if not secs:
            failures[_reason(timed.error_msg)] += 1
            if is_machinery_failure(timed.error_msg):
                unfinished.add(entry.task)
            continue
        best = fastest[entry.task]
        if mean(secs) < (math.inf if best is None else best.secs):
            fastest[entry.task] = Fastest(entry.trace, mean(secs))
    for given in inputs:
        shutil.rmtree(os.path.dirname(str(given.artifact_path)), ignore_errors=True)
    for reason, count in failures.items():
        logger.info("%d first picks could not be measured: %s", count, reason)
    return [None if place in unfinished else best for place, best in enumerate(fastest)]


def _entries(place: int, task: Finalists) -> list[_Entry]:
    """The distinct schedules of a workload, the unscheduled one last: it may be very slow."""
    found: dict[int, _Entry] = {}
    for trace in task.traces:
        schedule = Schedule(task.mod, debug_mask="none", error_render_level="none")
        # A trace that does not replay fails in as many ways as there are schedule primitives.
        try:
            trace.apply_to_schedule(schedule, remove_postproc=False)
        except Exception as error:
            logger.info("a first pick does not replay: %s", type(error).__name__)
            continue
        found.setdefault(structural_hash(schedule.mod), _Entry(place, schedule.trace, schedule.mod))
    unscheduled = Schedule(task.mod, debug_mask="none")
    found.setdefault(structural_hash(task.mod), _Entry(place, unscheduled.trace, unscheduled.mod))
    return list(found.values())


def _reason(message: object) -> str:
    lines = str(message or "no time").strip().splitlines()
    return lines[-1][:200]


def weighing(gains: Sequence[float], share: float) -> list[int]:
    """The tasks that are worth measuring.

    ``gains``: the seconds that each task could gain in a run of the model. ``share``: the share of
    all gains that is enough. Returns the tasks with the largest gains that hold that share
    together, the largest first.
    """
    total, held = sum(gains), 0.0
    chosen: list[int] = []
    for place in sorted(range(len(gains)), key=lambda place: -gains[place]):
        if held >= share * total or not gains[place] > 0.0:
            break
        chosen.append(place)
        held += gains[place]
    return chosen
