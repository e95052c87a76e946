# SPDX-License-Identifier: Apache-2.0
"""No more trials than asked, where TVM measures whole batches. Imports no TVM."""

from collections.abc import Callable
from typing import Protocol


class Ended(Protocol):
    """The outcome of a run; see ``TuningRun``."""

    @property
    def trials(self) -> int:
        """The schedules that it measured."""

    @property
    def why_ended(self) -> str:
        """The reason that it ended; "trials" where they were spent."""


def in_whole_batches(
    run: Callable[[int, int | None], Ended], size: int, trials: int | None
) -> tuple[int, str]:
    """Run until the trials are spent; what no whole batch is left of is one of its own.

    ``run``: measures batches of so many schedules, until there are as many as the second argument.
    ``size``: the most schedules of a batch. ``trials``: the most schedules; None for no limit.
    Returns the schedules that were measured, and why the last run ended.
    """
    if trials is None:
        only = run(size, None)
        return only.trials, only.why_ended
    done = 0
    while True:
        size = max(1, min(size, trials - done))
        last = run(size, max(0, trials - done) // size * size)
        done += last.trials
        if done >= trials or not last.trials or last.why_ended != "trials":
            return done, last.why_ended
