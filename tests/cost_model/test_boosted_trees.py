# SPDX-License-Identifier: Apache-2.0
"""Boosted trees on data with a known ranking."""

import numpy as np
import pytest

from tvm_droplet_ms.cost_model.boosted_trees import Trees
from tvm_droplet_ms.cost_model.throughput import pairwise_accuracy, relative_throughput

GENERATOR = np.random.default_rng(0)
FEATURES = GENERATOR.normal(size=(600, 8))
SECS = np.exp(FEATURES[:, 0] + 0.5 * FEATURES[:, 1] ** 2)
WORKLOADS = np.repeat([0, 1, 2], 200)
"""The third workload is a hundred times slower than the others."""
SCALE = np.repeat([1.0, 1.0, 100.0], 200)


def throughput(secs: np.ndarray) -> np.ndarray:
    return np.concatenate(
        [relative_throughput(secs[WORKLOADS == workload]) for workload in range(3)]
    )


# The squared error of the throughput hardly depends on the order of the slowest programs.
@pytest.mark.parametrize("objective, least", [("rank", 0.85), ("regression", 0.75)])
def test_ranks_unseen_programs(objective, least):
    trees = Trees.fit(
        FEATURES, throughput(SECS * SCALE), WORKLOADS, objective=objective, rounds=300, seed=0
    )
    unseen = GENERATOR.normal(size=(200, 8))
    secs = np.exp(unseen[:, 0] + 0.5 * unseen[:, 1] ** 2)
    assert pairwise_accuracy(trees.predict(unseen), secs) > least


@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_predicts_relative_throughput(objective):
    """The unit of the objective's raw scores does not matter."""
    expected = throughput(SECS * SCALE)
    trees = Trees.fit(FEATURES, expected, WORKLOADS, objective=objective, rounds=300, seed=0)
    predicted = trees.predict(FEATURES)
    assert np.abs(predicted - expected).mean() < 0.08
    slope = np.polyfit(predicted, expected, 1)[0]
    assert slope == pytest.approx(1.0, abs=0.15)


def test_prediction_follows_sample_weights():
    """Two programs differ only in time; the prediction is nearer to the heavier one."""
    features = np.zeros((200, 1))
    values = np.repeat([0.0, 1.0], 100)
    for heavy, expected in ((0, 0.1), (1, 0.9)):
        weights = np.where(values == heavy, 9.0, 1.0)
        trees = Trees.fit(
            features,
            values,
            np.zeros(200, dtype=int),
            objective="regression",
            rounds=80,
            seed=0,
            weights=weights,
        )
        assert trees.predict(features)[0] == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_trains_on_single_program(objective):
    trees = Trees.fit(
        np.ones((1, 3)), np.ones(1), np.zeros(1, dtype=int), objective=objective, rounds=5, seed=0
    )
    assert np.isfinite(trees.predict(np.ones((2, 3)))).all()
