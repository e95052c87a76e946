# SPDX-License-Identifier: Apache-2.0
"""The choice of the task that is measured next. Imports no TVM.

The rule, for a model whose kernels are tasks:

1. Every task of which no time is known is visited once, in the order of its weight times its
   roofline: the seconds of the model that are surely spent in it.
2. Then the batch goes where it is expected to take most seconds off the model per second of wall
   clock: the weight of the task, times what is left between its best time and its roofline, times
   the share of that which its last batches closed, over the seconds that its batches take.

A task without progress for long rests, one near its roofline soon: it is asked again only when all
others rest too.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

NEAR, NEAR_PATIENCE = 1.05, 3
"""A task within this factor of its roofline rests after this many batches without progress."""

LEAST_LEFT = 0.03
"""The least share of its best time that is expected to be left to a task: the roofline is an
estimate, which some kernels beat."""

EXPECTED_SHARE = 0.3
"""The share of what is left to the roofline that a task's first batch is expected to close; the
n-th batch closes an n-th of it."""

EXPECTED_WEIGHT, WINDOW = 2.0, 3
"""The batches that the expectation counts as, beside a task's latest ones."""

PROGRESS = 0.005
"""The least relative improvement that counts as progress; timings scatter by more."""

PATIENCE, PATIENCE_SHARE = 48, 0.5
"""A task rests after this many batches without progress, or this share of its batches if that is
more."""

LATEST_COSTS = 3
"""The batches of a task whose mean cost is expected of its next one, without the first: that one is
larger, and samples the task's design space."""


@dataclass(frozen=True)
class Stake:
    """The calls of a task's kernel in a run of the model, and the kernel's roofline in seconds."""

    weight: float
    bound_secs: float

    @property
    def secs(self) -> float:
        """The seconds of one run of the model that the kernel takes at least."""
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
        # The first times say nothing about how fast they improve.
        if not math.isinf(before):
            left = before - self.stake.bound_secs
            closed = (before - self.best_secs) / left if left > 0 else 0.0
            self.closed = [*self.closed, min(closed, 1.0)][-WINDOW:]

    @property
    def share(self) -> float:
        """The share of what is left that the next batch is expected to close."""
        expected = EXPECTED_SHARE / (self.batches + 1)
        return (EXPECTED_WEIGHT * expected + sum(self.closed)) / (
            EXPECTED_WEIGHT + len(self.closed)
        )

    @property
    def gain(self) -> float:
        """The seconds that the next batch is expected to take off the model."""
        if math.isinf(self.best_secs):
            # As if the first valid time were twice the roofline.
            return self.stake.secs * self.share
        left = max(self.best_secs - self.stake.bound_secs, LEAST_LEFT * self.best_secs)
        return self.stake.weight * left * self.share

    @property
    def rests(self) -> bool:
        """True if the task has made no progress for long."""
        if self.best_secs <= NEAR * self.stake.bound_secs and self.quiet >= NEAR_PATIENCE:
            return True
        return self.quiet >= max(PATIENCE, PATIENCE_SHARE * self.batches)


class Priorities:
    """Chooses the task of each batch; where all tasks rest, they go on by the same rule.

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
        """Take over the time of an earlier run, or of a first pick: it then counts as visited."""
        self._tasks[task].best_secs = min(self._tasks[task].best_secs, best_secs)

    def tell(self, task: int, best_secs: float, cost_secs: float) -> None:
        """Take the result of a batch.

        ``task``: the index of the task. ``best_secs``: the best time of the batch in seconds;
        infinity if no measurement succeeded. ``cost_secs``: the seconds of wall clock that the
        batch took.
        """
        self._tasks[task].tell(best_secs, cost_secs)

    def end(self, task: int) -> None:
        """Leave out a task whose search has ended."""
        self._tasks[task].ended = True

    def rests(self, task: int) -> bool:
        """True if a task has made no progress for long."""
        return self._tasks[task].rests

    def best_secs(self, task: int) -> float:
        """The best time of a task in seconds; infinity before it has one."""
        return self._tasks[task].best_secs

    def next(self, secs_left: float = math.inf, busy: Collection[int] = ()) -> int | None:
        """Choose the task of the next batch; None where none is to be measured any more.

        A batch that is expected to take longer than the seconds that are left is not chosen, nor
        are ``busy`` tasks.
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
        """The seconds that the next batch of a task is expected to take; 0 where nothing is known.

        A task without a batch is expected to take what first batches take, and one without a second
        batch what those of other tasks take: the first batch of a run may have waited for its
        workers.
        """
        costs = self._tasks[task].costs
        if len(costs) > 1:
            return fmean(costs[1:][-LATEST_COSTS:])
        firsts = [progress.costs[0] for progress in self._tasks if progress.costs]
        later = [cost for progress in self._tasks for cost in progress.costs[1:][-LATEST_COSTS:]]
        pool = later if costs and later else firsts
        return median(pool) if pool else 0.0

    def rate(self, task: int) -> float:
        """The expected gain of a task's next batch, in model seconds per second of wall clock."""
        return self._tasks[task].gain / max(self.cost(task), 1e-9)

    @staticmethod
    def _is_new(progress: _Progress) -> bool:
        return progress.batches == 0 and math.isinf(progress.best_secs)
