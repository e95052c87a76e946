# SPDX-License-Identifier: Apache-2.0
"""Measures the first picks of the kernels that weigh, within a share of the time."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from tvm.ir import load_json
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.target import Target

from ...search_strategy.known.known_schedules import KnownLike
from ...search_strategy.logger import logger
from ...session.roofline import MachineRates, task_bound
from ...session.stop import StopRequest
from .pick_file import PickFile
from .pick_measuring import Builds, Fastest, Finalists, Runs, measure_finalists, weighing
from .pick_sampling import PickRequest
from .picks import FirstPick, FirstPicks, last_line, task_key

MEASURED = 3
"""The best predicted schedules of a kernel that are measured."""

SAMPLED = 64
"""The schedules that they are chosen from, as many as are sampled of a heavy kernel."""

SPACE = "post-order-apply"
"""The design space, the same as that of the tuning."""

AT_ONCE = 4
"""The kernels whose schedules are built before the first is timed: builds disturb what is timed."""

START_BUILDS, TASK_BUILDS = 30, 15
"""The time of starting processes, and that of a kernel, before one was measured: in times of
compiling a kernel, seen on two CPUs."""

GAIN_SHARE = 0.98
"""The kernels that hold this share of the seconds above the roofline are measured."""


class SamplesFinalists(Protocol):
    """Chooses the schedules of a task to measure."""

    def submit_finalists(self, request: PickRequest, count: int) -> "Future[list[str]]":
        """Their traces, as JSON; see ``sample_finalists``."""


@dataclass
class PickContest:
    """Measures a few schedules of each kernel that weighs, and the unscheduled kernel.

    - ``rates``: the machine's rates.
    - ``sampler``: chooses the schedules.
    - ``builder``, ``runner``: build and time them.
    - ``file``: where the fastest are kept. None for nowhere.
    - ``seed``: seed of the sampling.
    - ``known``: schedules of other models' tasks; see ``find_schedules``.
    """

    target: Target
    rates: MachineRates
    sampler: SamplesFinalists
    builder: Builds
    runner: Runs
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
        """Measure while there is time; the kernels with the most to gain first.

        - ``tasks``: those that may have another schedule.
        - ``picks``: their picks, which are replaced by the fastest.
        - ``secs``: the seconds of each task in a run of the model as it is, by its name.
        - ``stop``: when to end. A batch that is expected to take longer is made smaller, or not
          begun.
        - ``build_secs``: the seconds that a kernel of the model took to compile, all processes
          together: how fast the machine is now.

        Returns the tasks that have been measured. What is built or timed at the end is dropped: an
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
            with self._ending_by(stop.deadline):
                found = measure_finalists(finalists, self.target, self.builder, self.runner)
            for task, fastest in zip(batch, found, strict=True):
                if fastest is not None:
                    self._keep(task, picks, fastest)
                    count += 1
            start, each = 0.0, (self.clock() - began) / len(batch)
        return count

    @contextmanager
    def _ending_by(self, moment: float) -> Iterator[None]:
        """Within it, what is built or timed at a moment is dropped."""
        parts = (self.builder, self.runner)
        for part in parts:
            part.end_by(moment)
        try:
            yield
        finally:
            for part in parts:
                part.end_by(math.inf)

    def _waiting(
        self, tasks: Sequence[ExtractedTask], picks: FirstPicks, secs: Mapping[str, float]
    ) -> list[ExtractedTask]:
        open_tasks = []
        for task in tasks:
            pick = picks.find(task.dispatched[0], self.target)
            if pick is None or pick.secs is None:
                open_tasks.append(task)
        gains = []
        for task in open_tasks:
            bound = task_bound(task.dispatched[0], self.rates) or 0.0
            gains.append(max(0.0, secs.get(str(task.task_name), 0.0) - int(task.weight) * bound))
        return [open_tasks[place] for place in weighing(gains, GAIN_SHARE)]

    def _finalists(self, tasks: Sequence[ExtractedTask], picks: FirstPicks) -> list[Finalists]:
        requests = [
            PickRequest(task.dispatched[0], self.target, SAMPLED, SPACE, 1, self.seed, self.known)
            for task in tasks
        ]
        futures = [self.sampler.submit_finalists(request, MEASURED) for request in requests]
        finalists = []
        for task, future in zip(tasks, futures, strict=True):
            mod = task.dispatched[0]
            pick = picks.find(mod, self.target)
            traces = [] if pick is None else [pick.trace]
            # A task whose space TVM cannot make, or a worker that ends: it keeps what it has.
            try:
                traces += [_trace(mod, text) for text in future.result()]
            except Exception as error:
                logger.info("%s: nothing else to measure: %s", task.task_name, last_line(error))
            finalists.append(Finalists(mod, tuple(traces)))
        return finalists

    def _keep(self, task: ExtractedTask, picks: FirstPicks, fastest: Fastest) -> None:
        mod = task.dispatched[0]
        before = picks.find(mod, self.target) or FirstPick(mod, fastest.trace, (), ())
        pick = replace(before, trace=fastest.trace, secs=fastest.secs)
        picks.keep(pick, self.target)
        picks.unscheduled.pop(str(task.task_name), None)
        if self.file is not None:
            self.file.append([pick.to_line(task_key(mod, self.target))])


def _trace(mod: object, text: str) -> Trace:
    schedule = Schedule(mod, debug_mask="none", error_render_level="none")
    Trace.apply_json_to_schedule(load_json(text), schedule)
    return schedule.trace
