# SPDX-License-Identifier: Apache-2.0
"""Times of programs, relative throughputs, and how well scores rank programs.

Imports no TVM.
"""

from collections.abc import Iterable, Sequence
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


def pairwise_accuracy(scores: np.ndarray, secs: np.ndarray) -> float:
    """The share of program pairs that the scores and the times order alike.

    ``scores``: array of shape ``(programs,)``; higher for a program that is predicted to be faster.
    ``secs``: the programs' times in seconds, of the same shape; infinity for a failure. Returns the
    share among pairs with different times. A pair of equal scores counts as half, so that 0.5 is
    chance. NaN if all times are equal.
    """
    alike = unlike = 0
    for score, sec in zip(scores, secs, strict=True):
        order = _order(secs, sec)
        alike -= int((order * _order(scores, score)).sum())
        unlike += int(np.count_nonzero(order))
    return 0.5 * (1.0 + alike / unlike) if unlike else float("nan")


def top_k_score(scores: Sequence[np.ndarray], secs: Sequence[np.ndarray], k: int) -> float:
    """TenSet's top-k score: the quality of the best of the k programs with the highest scores.

    Parameters
    ----------
    scores, secs : Sequence[np.ndarray]
        For each workload, the scores and the times in seconds of its programs, of shape
        ``(programs,)``.
    k : int
        Number of programs of a workload to measure, at least 1.

    Returns
    -------
    score : float
        The sum of the workloads' best times divided by the sum of the best times among the chosen
        programs, at most 1; 0 if all chosen programs of a workload failed.

    Notes
    -----
    "TenSet: A Large-scale Program Performance Dataset for Learned Tensor Compilers" (Zheng et al.,
    NeurIPS 2021), each workload counted once. Each workload must have a program that succeeded.
    """
    best = [float(times.min()) for times in secs]
    chosen = [
        float(times[np.argsort(-score, kind="stable")[:k]].min())
        for score, times in zip(scores, secs, strict=True)
    ]
    return sum(best) / sum(chosen)


def _order(values: np.ndarray, value: float) -> np.ndarray:
    """The sign of ``values - value``, by comparison because infinities cannot be subtracted."""
    return (values > value).astype(int) - (values < value)
