# SPDX-License-Identifier: Apache-2.0
"""Quality of a ranking of programs by scores. Imports no TVM."""

from collections.abc import Sequence

import numpy as np


def pairwise_accuracy(scores: np.ndarray, secs: np.ndarray) -> float:
    """Share of the pairs of programs that are ordered alike by scores and times.

    ``scores``: array of shape ``(programs,)``; higher for a program that is predicted to be faster.
    ``secs``: their times in seconds, of the same shape; infinity for a failure. Returns share of
    the pairs with different times; a pair of equal scores counts as half, so that 0.5 is chance.
    NaN if all times are equal.
    """
    alike = unlike = 0
    for score, sec in zip(scores, secs, strict=True):
        order = _order(secs, sec)
        alike -= int((order * _order(scores, score)).sum())
        unlike += int(np.count_nonzero(order))
    return 0.5 * (1.0 + alike / unlike) if unlike else float("nan")


def top_k_score(scores: Sequence[np.ndarray], secs: Sequence[np.ndarray], k: int) -> float:
    """TenSet's top-k score: the quality of the best of the k programs of the highest scores.

    Parameters
    ----------
    scores, secs : Sequence[np.ndarray]
        For each workload the scores and the times in seconds of its programs, of shape
        ``(programs,)``.
    k : int
        Programs of a workload that would be measured, at least 1.

    Returns
    -------
    score : float
        The sum of the workloads' best times over the sum of the best times among the chosen, at
        most 1; 0 where all chosen programs of a workload failed.

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
    """1 where an element is larger, -1 where it is smaller: infinities do not subtract."""
    return (values > value).astype(int) - (values < value)
