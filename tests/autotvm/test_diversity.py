# SPDX-License-Identifier: Apache-2.0
"""The diverse pick against brute force."""

import random
from itertools import combinations

import numpy as np
import pytest

from tvm_droplet_ms.autotvm.annealing import submodular_pick


def worth(batch, scores, covers, alpha):
    return sum(scores[i] for i in batch) + alpha * len(
        frozenset().union(*(covers[i] for i in batch))
    )


@pytest.mark.parametrize("seed", range(20))
def test_greedy_batch_is_within_its_bound_of_the_best_batch(seed):
    generator = random.Random(seed)
    scores = np.array([generator.random() for _ in range(9)])
    covers = [frozenset((axis, generator.randrange(3)) for axis in range(4)) for _ in scores]
    alpha = generator.choice([0.05, 0.2, 1.0])
    picked = worth(submodular_pick(scores, covers, 4, alpha), scores, covers, alpha)
    best = max(worth(batch, scores, covers, alpha) for batch in combinations(range(9), 4))
    assert (1 - 1 / np.e) * best <= picked <= best + 1e-12


def test_alpha_of_zero_picks_the_highest_scores():
    scores = np.array([0.1, 0.9, 0.5, 0.7])
    assert submodular_pick(scores, [frozenset("a")] * 4, 3, 0.0) == [1, 3, 2]


def test_new_component_outweighs_a_higher_score():
    """The second best covers nothing new; a half more for a new value makes up for 0.3."""
    scores = np.array([0.9, 0.8, 0.5])
    covers = [frozenset("a"), frozenset("a"), frozenset("b")]
    assert submodular_pick(scores, covers, 2, 0.5) == [0, 2]
    assert submodular_pick(scores, covers, 2, 0.2) == [0, 1]


def test_batch_of_fewer_candidates_than_asked_for_has_all_of_them():
    assert submodular_pick(np.array([0.2, 0.4]), [frozenset(), frozenset()], 5, 1.0) == [1, 0]
    assert submodular_pick(np.empty(0), [], 3, 1.0) == []
