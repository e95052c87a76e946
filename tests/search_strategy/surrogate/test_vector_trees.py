# SPDX-License-Identifier: Apache-2.0
"""Trees over vectors, on functions that are known."""

import numpy as np

from tvm_droplet_ms.search_strategy.descents.belief import VectorTrees, out_of_fold


def test_trees_rank_what_they_have_not_seen():
    rng = np.random.default_rng(0)
    seen, unseen = rng.random((200, 6)), rng.random((200, 6))

    def value(vectors):
        return vectors[:, 0] * vectors[:, 1] + vectors[:, 2]

    predicted = VectorTrees.fit(seen, value(seen)).predict(unseen)
    assert np.corrcoef(predicted, value(unseen))[0, 1] > 0.85


def test_a_value_does_not_predict_itself():
    """Of noise nothing can be known, so that only a leak would be correlated with it."""
    rng = np.random.default_rng(1)
    vectors, noise = rng.random((128, 20)), rng.standard_normal(128)
    own = VectorTrees.fit(vectors, noise).predict(vectors)
    assert np.corrcoef(own, noise)[0, 1] > 0.7
    assert abs(np.corrcoef(out_of_fold(vectors, noise), noise)[0, 1]) < 0.3


def test_two_values_predict_each_other():
    assert out_of_fold(np.array([[0.0], [1.0]]), np.array([3.0, 5.0])).tolist() == [5.0, 3.0]
