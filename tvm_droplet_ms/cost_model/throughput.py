# SPDX-License-Identifier: Apache-2.0
"""Times of programs, and the relative throughput that models predict. Imports no TVM."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..session.records import FAILED_SECS


def median_secs(run_secs: Iterable[Any] | None) -> float:
    """The median of a program's times in seconds, as in TVM's ``XGBModel``.

    ``run_secs``: the times in seconds, of a ``RunnerResult`` or a ``TuningRecord``. Returns
    infinity for a failed measurement: it has no times, a time that is not finite and positive, or
    ``FAILED_SECS``.
    """
    times = np.array([float(secs) for secs in run_secs or ()])
    if not len(times) or not np.all(np.isfinite(times) & (times > 0)):
        return float("inf")
    median = float(np.median(times))
    return median if median < FAILED_SECS else float("inf")


def relative_throughput(secs: np.ndarray) -> np.ndarray:
    """The best time of a workload divided by the time of each of its programs.

    ``secs``: times in seconds, of shape ``(programs,)``. Infinite, NaN, zero and negative times are
    failures. Returns values from 0 to 1, of the same shape; 0 for a failure.
    """
    valid = np.isfinite(secs) & (secs > 0)
    throughput = np.zeros(len(secs))
    if valid.any():
        throughput[valid] = secs[valid].min() / secs[valid]
    return throughput


def throughput_line(scores: np.ndarray, throughput: np.ndarray) -> tuple[float, float]:
    """Fit the line from a model's scores, which may have any unit, to relative throughputs.

    ``scores``, ``throughput``: scores and throughputs of the training programs, of shape
    ``(programs,)``. Returns the intercept and the slope of the least-squares line. The slope is at
    least 0, so that the line keeps the order of the scores. It is 1 if all scores are equal.
    """
    if np.ptp(scores) == 0:
        return 0.0, 1.0
    slope, intercept = np.polyfit(scores, throughput, 1)
    return float(intercept), max(float(slope), 0.0)
