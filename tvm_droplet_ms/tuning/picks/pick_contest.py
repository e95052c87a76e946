# SPDX-License-Identifier: Apache-2.0
"""Measure the first picks of the expensive kernels, and their unscheduled versions.

The best predicted schedule is not always fast. For a convolution of 12 channels, the first choice
took 78 ms and the third 3.3 ms. For a long group norm, the first choice took 515 ms, and the
unscheduled kernel takes 6.5 ms.
"""

import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.builder import BuilderInput
from tvm.s_tir.meta_schedule.runner import RunnerInput
from tvm.target import Target

from ...measure.background import BackgroundRunner, PatientBuilder
from ...measure.failures import is_machinery_failure
from ...search_strategy.known_schedules import KnownLike
from ...search_strategy.logger import logger
from ...search_strategy.published.candidates import mean, valid_secs
from ...session.errors import last_line
from ...session.roofline import MachineRates, least_computing, task_bound
from ...session.stop import StopRequest
from .pick_pace import MOST, weighing
from .pick_sampling import PickRequest
from .pick_workers import PickWorkers
from .picks import FirstPick, FirstPicks, PickFile, replayed, task_key

MEASURED = 3
"""The number of best predicted schedules of a kernel to measure."""

AT_ONCE = 4
"""The number of kernels whose schedules are built before timing starts: builds disturb timing."""

START_BUILDS, TASK_BUILDS = 30, 15
"""The initial estimates of the time to start processes and of the time per kernel, as multiples of
the time to compile a kernel; measured on two CPUs."""

SAMPLING_SECS = 0.5
"""The seconds of one core to draw random schedules of a kernel: enough for ``MOST`` of most
kernels. Schedules of matrix tiles take three times as long, and measuring one takes 0.2 s."""

UNSCHEDULED = 3.0
"""The least time of an unscheduled kernel, as a multiple of its operations at the peak rate of
float32: of ResNet-50's kernels, the fastest takes 3.3 times that."""

GAIN_SHARE = 0.98
"""The kernels with this share of the total seconds above the roofline are measured."""


@dataclass(frozen=True)
class Finalists:
    """The schedules of a workload to measure besides the unscheduled one; its pick comes first.

    - ``has_pick``: whether there is one. Otherwise, the unscheduled kernel counts as it.
    - ``vector_secs``: the seconds that a schedule without tensor intrinsics takes at least.
    """

    mod: IRModule
    traces: tuple[Trace, ...]
    has_pick: bool = True
    vector_secs: float = 0.0


@dataclass(frozen=True)
class Fastest:
    """The fastest trace of a workload, empty for the unscheduled kernel, and its mean seconds.

    ``pick_secs``: the mean seconds of the workload's pick; infinity if it could not be measured.
    """

    trace: Trace
    secs: float
    pick_secs: float


@dataclass(frozen=True)
class _Entry:
    """A schedule to build and run.

    ``is_pick``: whether it is the pick of its workload. ``least_secs``: the seconds that it takes
    at least.
    """

    task: int
    trace: Trace
    mod: IRModule
    is_pick: bool = False
    least_secs: float = 0.0


def measure_finalists(
    tasks: Sequence[Finalists], target: Target, builder: PatientBuilder, runner: BackgroundRunner
) -> list[Fastest | None]:
    """Build all schedules, then time them; return the fastest of each workload.

    Schedules that cannot be the fastest are not run: some unscheduled kernels take seconds.
    The result is None if no schedule of a workload could be measured. It is also None if the
    machine failed on one of them, for lack of time or disk space: the best of the rest may be slow.
    """
    entries = [entry for place, task in enumerate(tasks) for entry in _entries(place, task)]
    built = builder.build([BuilderInput(entry.mod, target) for entry in entries])
    failures = Counter[str]()
    unfinished: set[int] = set()
    inputs: list[tuple[_Entry, RunnerInput]] = []
    for entry, result in zip(entries, built, strict=True):
        if result.artifact_path is None:
            failures[last_line(result.error_msg or "no time")[:200]] += 1
            if is_machinery_failure(result.error_msg):
                unfinished.add(entry.task)
            continue
        info = ArgInfo.from_entry_func(entry.mod, remove_preproc=True)
        inputs.append((entry, RunnerInput(str(result.artifact_path), "cpu", info)))
    fastest: list[Fastest | None] = [None] * len(tasks)

    def time_those(chosen: Sequence[tuple[_Entry, RunnerInput]]) -> None:
        futures = runner.run([given for _, given in chosen]) if chosen else []
        for (entry, _), future in zip(chosen, futures, strict=True):
            timed = future.result()
            secs = valid_secs(timed.run_secs)
            if not secs:
                failures[last_line(timed.error_msg or "no time")[:200]] += 1
                if is_machinery_failure(timed.error_msg):
                    unfinished.add(entry.task)
                continue
            best = fastest[entry.task] or Fastest(entry.trace, math.inf, math.inf)
            if entry.is_pick:
                best = replace(best, pick_secs=mean(secs))
            if mean(secs) < best.secs:
                best = replace(best, trace=entry.trace, secs=mean(secs))
            fastest[entry.task] = best

    time_those([each for each in inputs if each[0].least_secs == 0.0])
    slow = [each for each in inputs if each[0].least_secs > 0.0]
    times = [math.inf if best is None else best.secs for best in fastest]
    time_those([each for each in slow if each[0].least_secs < times[each[0].task]])
    for _, given in inputs:
        shutil.rmtree(os.path.dirname(str(given.artifact_path)), ignore_errors=True)
    for reason, count in failures.items():
        logger.info("%d first picks could not be measured: %s", count, reason)
    return [None if place in unfinished else best for place, best in enumerate(fastest)]


def _entries(place: int, task: Finalists) -> list[_Entry]:
    """Return a workload's distinct schedules; the unscheduled one, maybe very slow, comes last."""
    found: dict[int, _Entry] = {}
    for number, trace in enumerate(task.traces):
        schedule = Schedule(task.mod, debug_mask="none", error_render_level="none")
        # A trace that does not replay may raise an error of any schedule primitive.
        try:
            trace.apply_to_schedule(schedule, remove_postproc=False)
        except Exception as error:
            logger.info("a first pick does not replay: %s", type(error).__name__)
            continue
        is_pick = task.has_pick and number == 0
        least = 0.0 if is_pick or _tensorizes(schedule.trace) else task.vector_secs
        entry = _Entry(place, schedule.trace, schedule.mod, is_pick, least)
        found.setdefault(structural_hash(schedule.mod), entry)
    unscheduled = Schedule(task.mod, debug_mask="none")
    is_pick, least = not task.has_pick, UNSCHEDULED * task.vector_secs
    entry = _Entry(place, unscheduled.trace, unscheduled.mod, is_pick, least)
    found.setdefault(structural_hash(task.mod), entry)
    return list(found.values())


def _tensorizes(trace: Trace) -> bool:
    return any(str(each.kind.name) == "Tensorize" for each in trace.insts)


@dataclass
class PickContest:
    """Measures a few schedules of each expensive kernel, and the unscheduled kernel.

    ``file``: where the fastest schedules are kept; None to keep none.
    """

    target: Target
    rates: MachineRates
    sampler: PickWorkers
    measure: tuple[PatientBuilder, BackgroundRunner]
    file: PickFile | None
    seed: int
    known: KnownLike = "auto"
    clock: Callable[[], float] = time.monotonic

    def run(
        self,
        tasks: Sequence[ExtractedTask],
        picks: FirstPicks,
        secs: Mapping[str, float],
        stop: StopRequest,
        build_secs: float,
    ) -> int:
        """Measure while there is time, largest possible gain first; return the number of kernels.

        ``secs``: the seconds of each task in a run of the current model, by task name.
        ``build_secs``: the seconds per kernel of compiling with all processes, which shows the
        machine's current speed. Unfinished builds and runs are dropped at the deadline: an
        unscheduled kernel may take a minute.
        """
        waiting = self._waiting(tasks, picks, secs)
        start, each, count = START_BUILDS * build_secs, TASK_BUILDS * build_secs, 0
        while waiting and not stop.is_asked:
            size = int(min(AT_ONCE, (stop.left - start) / each))
            if size < 1:
                break
            began = self.clock()
            batch, waiting = waiting[:size], waiting[size:]
            finalists = self._finalists(batch, picks)
            for part in self.measure:
                part.end_by(stop.deadline)
            try:
                found = measure_finalists(finalists, self.target, *self.measure)
            finally:
                for part in self.measure:
                    part.end_by(math.inf)
            for task, fastest in zip(batch, found, strict=True):
                if fastest is not None:
                    self._keep(task, picks, fastest)
                    count += 1
            start, each = 0.0, (self.clock() - began) / len(batch)
        return count

    def _waiting(
        self, tasks: Sequence[ExtractedTask], picks: FirstPicks, secs: Mapping[str, float]
    ) -> list[ExtractedTask]:
        open_tasks, gains = [], []
        for task in tasks:
            mod = task.dispatched[0]
            pick = picks.find(mod, self.target)
            if pick is None or pick.secs is None:
                bound = int(task.weight) * (task_bound(mod, self.rates) or 0.0)
                open_tasks.append(task)
                gains.append(max(0.0, secs.get(str(task.task_name), 0.0) - bound))
        return [open_tasks[place] for place in weighing(gains, GAIN_SHARE)]

    def _finalists(self, tasks: Sequence[ExtractedTask], picks: FirstPicks) -> list[Finalists]:
        requests = [
            PickRequest(task.dispatched[0], self.target, MOST, self.seed, self.known, SAMPLING_SECS)
            for task in tasks
        ]
        futures = [self.sampler.submit_finalists(request, MEASURED) for request in requests]
        finalists = []
        for task, future in zip(tasks, futures, strict=True):
            mod = task.dispatched[0]
            pick = picks.find(mod, self.target)
            traces = [] if pick is None else [pick.trace]
            # If TVM cannot make the design space or a worker dies, the task keeps its pick.
            try:
                traces += [replayed(mod, text) for text in future.result()]
            except Exception as error:
                logger.info("%s: nothing else to measure: %s", task.task_name, last_line(error))
            least = least_computing(mod, self.rates)
            finalists.append(Finalists(mod, tuple(traces), pick is not None, least))
        return finalists

    def _keep(self, task: ExtractedTask, picks: FirstPicks, fastest: Fastest) -> None:
        mod = task.dispatched[0]
        before = picks.find(mod, self.target) or FirstPick(mod, fastest.trace, (), ())
        pick = replace(
            before, trace=fastest.trace, secs=fastest.secs, replaced_secs=fastest.pick_secs
        )
        picks.keep(pick, self.target)
        picks.unscheduled.pop(str(task.task_name), None)
        if self.file is not None:
            self.file.append([pick.to_line(task_key(mod, self.target))])
