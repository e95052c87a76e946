# SPDX-License-Identifier: Apache-2.0
"""Gives every kernel that is compared the same number of trials. Imports no TVM."""

import math
from collections.abc import Collection

from ...tuning.budget.priorities import Priorities


class InTurns(Priorities):
    """The task with the fewest batches is next, of these the one with the largest stake.

    A kernel with a hundred trials looks better than one with eight: what is to be compared gets as
    many. A task ends when its trials are spent; what earlier runs know makes no difference. A batch
    begins where any time is left.
    """

    def next(self, secs_left: float = math.inf, busy: Collection[int] = ()) -> int | None:
        """Choose the task of the next batch; see ``Priorities.next``."""
        open_tasks = {
            task: progress
            for task, progress in enumerate(self._tasks)
            if not progress.ended and task not in busy
        }
        return min(
            open_tasks,
            key=lambda task: (open_tasks[task].batches, -open_tasks[task].stake.secs),
            default=None,
        )
