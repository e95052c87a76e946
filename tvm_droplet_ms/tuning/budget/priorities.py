# SPDX-License-Identifier: Apache-2.0
"""The choice of the task to measure next. Does not import TVM.

The rule for a model whose kernels are tasks:

1. Every task without a known time is visited once, in descending order of its weight times its
   roofline. This product is a lower bound on the task's seconds in the model.
2. After that, a batch goes to the task with the largest expected gain in model seconds per
   wall-clock second. The gain is the weight of the task, times the gap between its best time and
   its roofline, times the share of the gap that its last batches closed. The gain is divided by the
   seconds of a batch.

A task rests after a long time without progress, or sooner if it is near its roofline. Resting tasks
are chosen only when all tasks rest.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

NEAR, NEAR_PATIENCE = 1.05, 3
"""A task within this factor of its roofline rests after this many batches without progress."""

LEAST_LEFT = 0.03
"""The minimum assumed gap to the roofline, as a share of the best time: the roofline is an
estimate, which some kernels beat."""

EXPECTED_SHARE = 0.3
"""The share of the gap to the roofline that a task's first batch is expected to close; the n-th
batch is expected to close 1/n of this share."""

EXPECTED_WEIGHT, WINDOW = 2.0, 3
"""The weight of the expected share, in batches, and the number of latest batches that are averaged
with it."""

PROGRESS = 0.005
"""The minimum relative improvement that counts as progress; timing noise is larger."""

PATIENCE, PATIENCE_SHARE = 48, 0.5
"""A task rests after this many batches without progress, or this share of its batches if that is
more."""

LATEST_COSTS = 3
"""The number of latest batches whose mean cost predicts the cost of a task's next batch. The first
batch is excluded: it is larger, and samples the task's design space."""


@dataclass(frozen=True)
class Stake:
    """The number of a kernel's calls in a run of the model, and its roofline in seconds."""

    weight: float
    bound_secs: float

    @property
    def secs(self) -> float:
        """A lower bound on the kernel's seconds in one run of the model."""
        return self.weight * self.bound_secs


@dataclass
class _Progress:
    """The state of one task."""

    stake: Stake
    best_secs: float = math.inf
    batches: int = 0
    quiet: int = 0
    closed: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    ended: bool = False

    def tell(self, best_secs: float, cost_secs: float) -> None:
        before, self.best_secs = self.best_secs, min(self.best_secs, best_secs)
        self.batches += 1
        self.costs.append(cost_secs)
        if self.best_secs < (1 - PROGRESS) * before:
            self.quiet = 0
        else:
            self.quiet += 1
        # The first time of a task does not show a rate of improvement.
        if not math.isinf(before):
            left = before - self.stake.bound_secs
            closed = (before - self.best_secs) / left if left > 0 else 0.0
            self.closed = [*self.closed, min(closed, 1.0)][-WINDOW:]

    @property
    def share(self) -> float:
        """The share of the gap to the roofline that the next batch is expected to close."""
        expected = EXPECTED_SHARE / (self.batches + 1)
        return (EXPECTED_WEIGHT * expected + sum(self.closed)) / (
            EXPECTED_WEIGHT + len(self.closed)
        )

    @property
    def gain(self) -> float:
        """The expected gain of the next batch in model seconds."""
        if math.isinf(self.best_secs):
            # Assume that the first valid time is twice the roofline.
            return self.stake.secs * self.share
        left = max(self.best_secs - self.stake.bound_secs, LEAST_LEFT * self.best_secs)
        return self.stake.weight * left * self.share

    @property
    def rests(self) -> bool:
        """Whether the task has made no progress for a long time."""
        if self.best_secs <= NEAR * self.stake.bound_secs and self.quiet >= NEAR_PATIENCE:
            return True
        return self.quiet >= max(PATIENCE, PATIENCE_SHARE * self.batches)


class Priorities:
    """Chooses the task of each batch. If all tasks rest, the same rule applies to all.

    Raises ``ValueError`` if a weight or a roofline is not positive and finite.
    """

    def __init__(self, stakes: Sequence[Stake]) -> None:
        for task, stake in enumerate(stakes):
            if not (0 < stake.weight < math.inf and 0 < stake.bound_secs < math.inf):
                raise ValueError(
                    f"the stake of task {task} is {stake}, expected positive finite numbers"
                )
        self._tasks = [_Progress(stake) for stake in stakes]

    def know(self, task: int, best_secs: float) -> None:
        """Record the time of an earlier run or a first pick; the task then counts as visited."""
        self._tasks[task].best_secs = min(self._tasks[task].best_secs, best_secs)

    def tell(self, task: int, best_secs: float, cost_secs: float) -> None:
        """Record the result of a batch.

        ``task``: the index of the task. ``best_secs``: the best time of the batch in seconds;
        infinity if no measurement succeeded. ``cost_secs``: the wall-clock seconds of the batch.
        """
        self._tasks[task].tell(best_secs, cost_secs)

    def end(self, task: int) -> None:
        """Exclude a task whose search has ended."""
        self._tasks[task].ended = True

    def rests(self, task: int) -> bool:
        """Return whether a task has made no progress for a long time."""
        return self._tasks[task].rests

    def best_secs(self, task: int) -> float:
        """Return the best time of a task in seconds; infinity before it has one."""
        return self._tasks[task].best_secs

    def next(self, secs_left: float = math.inf, busy: Collection[int] = ()) -> int | None:
        """Choose the task of the next batch; None if no task is left to measure.

        ``busy`` tasks are not chosen, nor are tasks whose next batch is expected to take more than
        ``secs_left``.
        """
        open_tasks = [
            task
            for task, progress in enumerate(self._tasks)
            if not progress.ended and task not in busy and self.cost(task) <= secs_left
        ]
        new = [task for task in open_tasks if self._is_new(self._tasks[task])]
        if new:
            return max(new, key=lambda task: (self._tasks[task].stake.secs, -task))
        active = [task for task in open_tasks if not self._tasks[task].rests] or open_tasks
        return max(active, key=lambda task: (self.rate(task), -task), default=None)

    def cost(self, task: int) -> float:
        """Return the expected seconds of a task's next batch; 0 if nothing is known.

        Without any batch of the task, this is the median over the first batches of all tasks. With
        only one, it is the median over the later batches of other tasks: the first batch of a run
        may have waited for its workers.
        """
        costs = self._tasks[task].costs
        if len(costs) > 1:
            return fmean(costs[1:][-LATEST_COSTS:])
        firsts = [progress.costs[0] for progress in self._tasks if progress.costs]
        later = [cost for progress in self._tasks for cost in progress.costs[1:][-LATEST_COSTS:]]
        pool = later if costs and later else firsts
        return median(pool) if pool else 0.0

    def rate(self, task: int) -> float:
        """Return the expected gain of a task's next batch, in model seconds per wall second."""
        return self._tasks[task].gain / max(self.cost(task), 1e-9)

    @staticmethod
    def _is_new(progress: _Progress) -> bool:
        return progress.batches == 0 and math.isinf(progress.best_secs)
