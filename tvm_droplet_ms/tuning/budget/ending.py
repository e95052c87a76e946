# SPDX-License-Identifier: Apache-2.0
"""The time for batches, and for the steps after the first executable. Imports no TVM."""

import math
from dataclasses import dataclass

SECS_PER_TRIAL = 0.35
"""The seconds of wall clock that a trial takes, seen on two CPUs: proposal, build, measurement."""

LARGEST, SMALLEST = 8, 2
"""A batch of fewer than 2 leaves a builder's second process idle; in one of more than 8 the last
candidates know little of the first."""

TIMED_RUNS, FEWEST_TIMED_RUNS, TIMED_SECS = 15, 5, 2.0
"""Runs of the final model that its latency is the median of: fewer of a slow one, to take no more
than some seconds."""

QUICK_SECS = 0.3
"""Seconds that the fewest runs may take where no time is left: one run is often twice too long."""

GRACE_SECS = 7.0
"""The seconds that a first executable may take beyond the time: a model without one is worth
nothing."""

SPARE_BUILDS = 0.3
"""The allowance of the last executable beyond the share of the first one that is built again."""

EXPORTS = 5
"""The time of writing and loading the last executable, in times of writing the first one: TVM
copies the constants several times when it loads them."""

CHECKS = 10
"""Runs of the last executable that are not its latency: checks, and the times of its kernels."""

MEASURED_SHARE, MEASURED_SHARE_ALONE = 0.25, 1.0
"""The share of the time in which first picks are measured: before a search, and without one. The
last executable has its time apart (``FirstCosts.ending_secs``)."""

LEAST_BUILD_SECS = 0.05
"""The least seconds that a kernel is taken to compile in: objects may have been there already."""

CHOICE_SHARE = 0.15
"""The share of the time that near-best schedules may take to be told apart inside the model."""


def batch_size(secs: float, kernels: int) -> int:
    """Half of the trials that there is time for, for each kernel, as a power of 2 within limits.

    The first schedules of a kernel gain the most: where there is time for a few trials of each,
    small batches reach more kernels.
    """
    size = LARGEST
    while size > SMALLEST and 2 * size * kernels * SECS_PER_TRIAL > secs:
        size //= 2
    return size


@dataclass(frozen=True)
class FirstCosts:
    """The first executable's kernels, and the seconds to compile it, to write it, and to run it."""

    kernels: int
    build_secs: float
    export_secs: float
    run_secs: float

    def ending_secs(self, left: float) -> float:
        """The seconds for building, checking and timing the last executable.

        Only kernels that get a batch in the seconds that are left are compiled again.
        """
        count = max(1, self.kernels)
        batch_secs = SECS_PER_TRIAL * batch_size(left, count)
        rebuilt = min(1.0, left / (batch_secs * count))
        secs = (SPARE_BUILDS + rebuilt) * self.build_secs + EXPORTS * self.export_secs
        return secs + (timed_runs(self.run_secs) + CHECKS) * self.run_secs

    def choosing_secs(self, variants: int, rounds: int) -> float:
        """The seconds to build some variants of the model and to time them in turns."""
        return variants * (self.build_secs + 2 * rounds * self.run_secs)


def timed_runs(secs: float, left: float = math.inf) -> int:
    """How often to time a model whose run takes so many seconds; at least once.

    Half of the seconds that are left may be spent on it, and ``QUICK_SECS`` in any case.
    """
    runs = max(FEWEST_TIMED_RUNS, min(TIMED_RUNS, int(TIMED_SECS / secs)))
    if runs * secs > left / 2:
        quick = min(FEWEST_TIMED_RUNS, int(QUICK_SECS / secs))
        runs = max(1, quick, int(left / 2 / secs))
    return runs


def late_note(over: float) -> str:
    """The note on a run whose first executable came so many seconds after its time was over."""
    return (
        f"the model was compiled and checked {over:.1f} s after the time was over, and nothing "
        "was measured: its schedules are what the directory knew or the cost model predicts; pass "
        "a larger time_budget_s (--minutes)"
    )
