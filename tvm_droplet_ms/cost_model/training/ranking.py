# SPDX-License-Identifier: Apache-2.0
"""Quality of a ranking of programs by scores. Imports no TVM."""

from collections.abc import Sequence

import numpy as np


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
