# SPDX-License-Identifier: Apache-2.0
"""ClockScheduler: a MetaSchedule task scheduler with a time budget."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.s_tir.meta_schedule.task_scheduler import PyTaskScheduler, TaskScheduler

from ...search_strategy.published.candidates import mean, valid_secs
from .priorities import Priorities

END = -1
"""The result of ``next_task_id`` that ends the run (``task_scheduler.cc``)."""


@dataclass
class TaskEffort:
    """The trials (including failures), batches and seconds that a run spent on one task."""

    trials: int = 0
    batches: int = 0
    secs: float = 0.0


class TuningClock:
    """Times the batches of a run and decides when it ends.

    A batch does not start if it is expected to exceed the deadline. ``why_ended`` is "time", the
    reason of ``should_stop``, or "converged" if no task was left to measure. It is empty while the
    run continues, and if the trials were spent.
    """

    def __init__(
        self,
        priorities: Priorities,
        tasks: int,
        *,
        deadline: float = math.inf,
        should_stop: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.efforts = [TaskEffort() for _ in range(tasks)]
        self.why_ended = ""
        self._priorities = priorities
        self._deadline = deadline
        self._should_stop = should_stop
        self._clock = clock
        self._began: dict[int, float] = {}
        self._sent: dict[int, float] = {}
        self._joining = math.nan

    def next(self, busy: Collection[int] = ()) -> int | None:
        """Choose the task of the next batch and start its time; None at the end of the run.

        With ``busy`` tasks, None only means that no other task should be measured now.
        """
        left = self._deadline - self._clock()
        if reason := self._should_stop():
            self.why_ended = reason
            return None
        if left <= 0:
            self.why_ended = "time"
            return None
        task = self._priorities.next(left, busy)
        if task is None and busy:
            return None
        if task is None:
            is_out_of_time = self._priorities.next() is not None
            self.why_ended = "time" if is_out_of_time else "converged"
            return None
        self._began[task] = self._clock()
        return task

    def send(self, task: int) -> None:
        """Mark a task's batch as built, at the start of its measurement.

        The time from here to ``join`` is not charged to the task: other batches are proposed then.
        """
        self._sent[task] = self._clock()

    def join(self) -> None:
        """Mark the start of waiting for results."""
        self._joining = self._clock()

    def finish(self, task: int, results: Sequence[RunnerResult]) -> None:
        """Record the results of a task's batch."""
        now = self._clock()
        cost = now - self._began.pop(task)
        if task in self._sent:
            cost -= self._joining - self._sent.pop(task)
        effort = self.efforts[task]
        effort.trials += len(results)
        effort.batches += 1
        effort.secs += cost
        times = [secs for result in results if (secs := valid_secs(result.run_secs))]
        self._priorities.tell(task, min(map(mean, times), default=math.inf), cost)

    def end(self, task: int) -> None:
        """Exclude a task whose search has ended."""
        self._priorities.end(task)


@derived_object
class ClockScheduler(PyTaskScheduler):
    """Measures the kernels of a model in the order that a ``TuningClock`` chooses.

    The tuning loop is TVM's own: only the choice of the next task is overridden. (Overriding
    ``tune`` or ``join_running_task`` in Python does not work in TVM 0.27: the first does not
    receive the batch size, and the second calls itself.) If the runner returns before it has
    measured (``measure.background``), a batch of another task is proposed during the measurement.
    Its task is then chosen without the results of the current batch.
    """

    def __init__(self, clock: TuningClock) -> None:
        """Constructor"""
        super().__init__()
        self._timing = clock
        self._sent: int | None = None
        self._measuring: int | None = None

    def next_task_id(self) -> int:
        """Choose the next batch's task during the current measurement; -1 ends the run."""
        sent, self._sent = self._sent, None
        # TVM terminates a task whose strategy has no more proposals.
        if sent is not None and self._outer().tasks_[sent].is_terminated:
            self._timing.end(sent)
            sent = None
        if sent is not None:
            self._timing.send(sent)
        self._join()
        self._measuring = sent
        following = self._timing.next(() if sent is None else (sent,))
        if following is None:
            # No other task is worth a batch. This task may be, once its results are known.
            self._join()
            following = self._timing.next()
        self._sent = following
        return END if following is None else following

    def _join(self) -> None:
        """Wait for the batch that is being measured."""
        if self._measuring is not None:
            self._timing.join()
            scheduler: TaskScheduler = self._outer()
            scheduler.join_running_task(self._measuring)
            self._measuring = None


@derived_object
class OnBatch(PyMeasureCallback):
    """Passes the task and the results of each batch to a function."""

    def __init__(self, tell: Callable[[int, list[RunnerResult]], None]) -> None:
        """Constructor"""
        super().__init__()
        self._tell = tell

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        """Take the results of a batch; see ``MeasureCallback.apply``."""
        self._tell(int(task_id), list(runner_results))
