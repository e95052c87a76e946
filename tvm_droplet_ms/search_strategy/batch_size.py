# SPDX-License-Identifier: Apache-2.0
"""The batch size of a descent."""

from .history import TaskHistory
from .published.lifecycle import Budget, Task

MIN_BATCH = 4
"""The smallest batch of a surrogate descent. For a GPU, a batch also has at least one candidate per
thread of the context: a candidate takes seconds to compile, in parallel with the others, and little
time to run. With the times of an H200 (1.7 s to build a batch, 0.44 s to run a candidate), 64
trials in batches of 16 take 37 s instead of 52 s. They reach 0.009 less of the optimum after 16
trials (-0.001 to 0.021) and 0.001 less after 64 (-0.011 to 0.011; thirteen spaces, ten seeds,
without prior and draft, 2026-11-26, commit 010a162)."""

BATCH_SHARE = 8
"""A batch of a surrogate descent has at most one candidate per this many measurements, so that the
surrogate learns from each batch before it chooses the next. Large batches reach 0.024 less of the
optimum after 16 trials (0.012 to 0.037; as above)."""

MAX_BATCH = 16
"""The largest batch of a surrogate descent."""


def least_batch(task: Task) -> int:
    """The smallest batch of a task's descent."""
    return max(MIN_BATCH, task.num_threads if "gpu" in task.target.keys else 0)


def growing_batch(history: TaskHistory, least: int, budget: Budget) -> int:
    """The batch size of a surrogate descent, which grows with the number of measurements."""
    return min(max(least, len(history) // BATCH_SHARE), MAX_BATCH, budget.room)
