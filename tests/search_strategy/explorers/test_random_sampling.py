# SPDX-License-Identifier: Apache-2.0
"""Random exploration: the share that the prior picks, and the share that it does not."""

import numpy as np
import pytest

from tvm_droplet_ms.search_strategy import RandomExplorer
from tvm_droplet_ms.search_strategy.explorers.random_sampling import best_and_others

SCORES = np.array([0.1, 0.9, 0.5, 0.7, 0.2])


@pytest.mark.parametrize(
    ("count", "epsilon", "chosen"),
    [
        (3, 0.0, [1, 3, 2]),
        (4, 0.5, [1, 3, 0, 2]),
        (2, 1.0, [0, 1]),
        (4, 0.05, [1, 3, 2, 4]),
        (9, 0.5, [1, 3, 2, 4, 0]),
        (0, 0.5, []),
    ],
)
def test_batch_has_best_then_others_in_order(count, epsilon, chosen):
    assert best_and_others(SCORES, count, epsilon) == chosen


def test_batch_from_no_scores_is_empty():
    assert best_and_others(np.empty(0), 4, 0.5) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1.5}, "epsilon is 1.5, expected a share from 0 to 1"),
        ({"epsilon": -0.1}, "epsilon is -0.1, expected a share from 0 to 1"),
        ({"epsilon": float("nan")}, "epsilon is nan, expected a share from 0 to 1"),
        ({"pool_size": 0}, "pool_size is 0, expected an integer of at least 1"),
        ({"pool_size": 2.5}, "pool_size is 2.5, expected an integer of at least 1"),
    ],
)
def test_option_out_of_range_is_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        RandomExplorer(**options)


def test_clone_keeps_the_options():
    clone = RandomExplorer(pool_size=7, epsilon=0.25).clone()
    assert (clone.pool_size, clone.epsilon) == (7, 0.25)
