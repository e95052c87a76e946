# SPDX-License-Identifier: Apache-2.0
"""Diversity-aware choice of a batch. Imports no TVM."""

from collections.abc import Hashable, Sequence

import numpy as np


def submodular_pick(
    scores: np.ndarray, covers: Sequence[frozenset[Hashable]], count: int, alpha: float
) -> list[int]:
    """Greedily pick a batch that is promising and diverse.

    It maximises sum(scores of the batch) + alpha * |union of what the batch covers|: the objective
    of "Learning to Optimize Tensor Programs" (Chen et al., 2018, section 3.3), where a candidate
    covers the value of each of its components. With non-negative scores the objective is monotone
    and submodular, so that the greedy batch has at least 1 - 1/e of the best batch's value
    (Nemhauser et al., 1978).

    - ``scores``: of shape ``(candidates,)``; the higher, the better.
    - ``covers``: the components that each candidate covers.
    - ``count``: the size of the batch.
    - ``alpha``: the worth of one more covered component, in the unit of the scores; 0 picks the
      highest scores.

    Returns indices in the order in which they were picked, ``count`` or as many as there are.
    """
    left = list(range(len(scores)))
    covered: set[Hashable] = set()
    batch: list[int] = []
    while left and len(batch) < count:
        picked = max(left, key=lambda index: scores[index] + alpha * len(covers[index] - covered))
        left.remove(picked)
        batch.append(picked)
        covered |= covers[picked]
    return batch
