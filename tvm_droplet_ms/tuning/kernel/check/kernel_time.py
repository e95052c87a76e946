# SPDX-License-Identifier: Apache-2.0
"""The time of a kernel over several processes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

OCCASION_SPREAD = 0.05
"""Standard deviation of the logarithm of a time between occasions, which are seconds or more apart.
It adds to the deviation between processes of one occasion. Without it 6 of 10 intervals held, with
it 9 of 10 (2026-11-24, commit 70d408a)."""

_STUDENT_90 = {2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833}
"""95% quantiles of Student's t-distribution by degrees of freedom, for two-sided 90% intervals."""


@dataclass(frozen=True)
class KernelTime:
    """The median time of a kernel over processes, in seconds.

    90% of the medians of other processes, including later ones, should be between ``low`` and
    ``high``.
    """

    secs: float
    low: float
    high: float

    @staticmethod
    def of(rounds: Sequence[float]) -> "KernelTime":
        """Compute the time from the medians of several processes."""
        logs = [math.log(secs) for secs in rounds]
        middle = median(rounds)
        if len(logs) < 3:
            return KernelTime(middle, min(rounds), max(rounds))
        freedom = min(len(logs) - 1, max(_STUDENT_90))
        spread = math.hypot(stdev(logs) * math.sqrt(1.0 + 1.0 / len(logs)), OCCASION_SPREAD)
        half = _STUDENT_90[freedom] * spread
        center = fmean(logs)
        low, high = math.exp(center - half), math.exp(center + half)
        return KernelTime(middle, min(low, middle), max(high, middle))
