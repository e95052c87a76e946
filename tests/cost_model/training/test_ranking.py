# SPDX-License-Identifier: Apache-2.0
"""Ranking quality, against brute-force pair counts and hand-computed values."""

from itertools import combinations

import numpy as np
import pytest

from tvm_droplet_ms.cost_model.throughput import pairwise_accuracy, top_k_score


def counted(scores: np.ndarray, secs: np.ndarray) -> float:
    """Pairwise accuracy by brute force."""
    points = []
    for one, other in combinations(range(len(secs)), 2):
        if secs[one] == secs[other]:
            continue
        faster, slower = (one, other) if secs[one] < secs[other] else (other, one)
        difference = scores[faster] - scores[slower]
        points.append(0.5 if difference == 0 else float(difference > 0))
    return float(np.mean(points))


@pytest.mark.parametrize("seed", range(5))
def test_pairwise_accuracy_matches_brute_force(seed):
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 6, 40).astype(float)
    secs = generator.integers(1, 8, 40).astype(float)
    secs[:3] = np.inf
    assert pairwise_accuracy(scores, secs) == pytest.approx(counted(scores, secs))


def test_pairwise_accuracy_of_perfect_and_reversed_ranking():
    secs = np.array([1.0, 2.0, 3.0, np.inf])
    assert pairwise_accuracy(-np.arange(4.0), secs) == pytest.approx(1.0)
    assert pairwise_accuracy(np.arange(4.0), secs) == pytest.approx(0.0)
    assert pairwise_accuracy(np.zeros(4), secs) == 0.5
    assert np.isnan(pairwise_accuracy(np.arange(4.0), np.ones(4)))


def test_top_k_matches_hand_computed_value():
    """In one workload the top choice takes 4 s and the best 1 s; in the other they are the same."""
    scores = [np.array([3.0, 2.0, 1.0]), np.array([0.0, 5.0])]
    secs = [np.array([4.0, 2.0, 1.0]), np.array([9.0, 3.0])]
    assert top_k_score(scores, secs, 1) == pytest.approx((1 + 3) / (4 + 3))
    assert top_k_score(scores, secs, 2) == pytest.approx((1 + 3) / (2 + 3))
    assert top_k_score(scores, secs, 3) == 1.0


def test_top_k_with_failed_programs():
    assert top_k_score([np.array([1.0, 0.0])], [np.array([np.inf, 1.0])], 1) == 0.0
