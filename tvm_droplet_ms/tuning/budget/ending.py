# SPDX-License-Identifier: Apache-2.0
"""Time for batches, and for the steps after the first executable. Does not import TVM."""

import math
from dataclasses import dataclass

SECS_PER_TRIAL = 0.35
"""Wall-clock seconds of a trial (proposal, build, measurement), as measured on two CPUs."""

LARGEST, SMALLEST = 8, 2
"""Limits of the batch size. A batch of fewer than 2 leaves the builder's second process idle. In a
batch of more than 8, the last candidates learn little from the first."""

TIMED_RUNS, FEWEST_TIMED_RUNS, TIMED_SECS = 15, 5, 2.0
"""The final model's latency is the median of up to ``TIMED_RUNS`` runs. A slow model gets fewer,
for about ``TIMED_SECS`` in total, but at least ``FEWEST_TIMED_RUNS``."""

QUICK_SECS = 0.3
"""Seconds of timed runs that are allowed when no time is left: a single run often takes twice as
long as the others."""

GRACE_SECS = 7.0
"""The seconds by which a first executable may exceed the time: a run without one is worthless."""

SPARE_BUILDS = 0.3
"""Extra build time for the final executable, as a share of the first build, in addition to the
share of kernels that are rebuilt."""

EXPORTS = 5
"""The time to write and load the final executable, as a multiple of writing the first one: TVM
copies the constants several times on loading."""

CHECKS = 10
"""Runs of the final executable besides the latency: for the checks and the kernel times."""

MEASURED_SHARE, MEASURED_SHARE_ALONE = 0.25, 1.0
"""The shares of the time for measuring first picks: before a search, and without one. The time of
the final executable is reserved separately (``FirstCosts.ending_secs``)."""

LEAST_BUILD_SECS = 0.05
"""A lower bound on the assumed compile time of a kernel in seconds: some objects are cached."""

CHOICE_SHARE = 0.15
"""The maximum share of the time for comparing near-best schedules inside the model."""


def batch_size(secs: float, kernels: int) -> int:
    """Return the batch size: half of the affordable trials per kernel, as a bounded power of 2.

    The first schedules of a kernel gain the most. If there is time for only a few trials per
    kernel, small batches reach more kernels.
    """
    size = LARGEST
    while size > SMALLEST and 2 * size * kernels * SECS_PER_TRIAL > secs:
        size //= 2
    return size


@dataclass(frozen=True)
class FirstCosts:
    """The kernel count of the first executable, and the seconds to compile, write and run it."""

    kernels: int
    build_secs: float
    export_secs: float
    run_secs: float

    def ending_secs(self, left: float) -> float:
        """Return the seconds to build, check and time the final executable.

        Only kernels that get a batch in the remaining seconds are recompiled.
        """
        count = max(1, self.kernels)
        batch_secs = SECS_PER_TRIAL * batch_size(left, count)
        rebuilt = min(1.0, left / (batch_secs * count))
        secs = (SPARE_BUILDS + rebuilt) * self.build_secs + EXPORTS * self.export_secs
        return secs + (timed_runs(self.run_secs) + CHECKS) * self.run_secs

    def choosing_secs(self, variants: int, rounds: int) -> float:
        """Return the seconds to build variants of the model and to time them in alternation."""
        return variants * (self.build_secs + 2 * rounds * self.run_secs)


def timed_runs(secs: float, left: float = math.inf) -> int:
    """Return the number of timed runs for a model that takes ``secs`` per run; at least 1.

    The runs may take half of the ``left`` seconds, or ``QUICK_SECS`` if that is more.
    """
    runs = max(FEWEST_TIMED_RUNS, min(TIMED_RUNS, int(TIMED_SECS / secs)))
    if runs * secs > left / 2:
        quick = min(FEWEST_TIMED_RUNS, int(QUICK_SECS / secs))
        runs = max(1, quick, int(left / 2 / secs))
    return runs


def late_note(over: float) -> str:
    """Return the note on a run whose first executable came ``over`` seconds too late."""
    return (
        f"the model was compiled and checked {over:.1f} s after the time was over, and nothing "
        "was measured: its schedules are what the directory knew or the cost model predicts; pass "
        "a larger time_budget_s (--minutes)"
    )
