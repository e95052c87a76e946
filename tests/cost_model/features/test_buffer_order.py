# SPDX-License-Identifier: Apache-2.0
"""The order of a store's buffers matches hand-computed orders."""

import numpy as np

from tvm_droplet_ms.cost_model.features.store_features import (
    BUFFERS,
    COMPUTATION,
    PER_BUFFER,
    PER_STORE,
    in_buffer_order,
    pooled_stores,
)

BYTES, UNIQUE_BYTES, LINES = 3, 4, 5


def store(*buffers: dict[int, float]) -> np.ndarray:
    features = np.arange(PER_STORE, dtype=np.float32) + 1000.0
    features[COMPUTATION : COMPUTATION + BUFFERS * PER_BUFFER] = 0.0
    for position, buffer in enumerate(buffers):
        for feature, value in buffer.items():
            features[COMPUTATION + position * PER_BUFFER + feature] = value
    return features


LARGE = {BYTES: 9.0, UNIQUE_BYTES: 1.0, LINES: 7.0}
TIED_LOW = {BYTES: 4.0, UNIQUE_BYTES: 2.0, LINES: 5.0}
TIED_HIGH = {BYTES: 4.0, UNIQUE_BYTES: 3.0, LINES: 5.0}


def test_tied_buffers_have_canonical_order():
    expected = store(LARGE, TIED_HIGH, TIED_LOW)
    for given in (store(LARGE, TIED_LOW, TIED_HIGH), expected):
        np.testing.assert_array_equal(in_buffer_order(given[None]), expected[None])
        np.testing.assert_array_equal(pooled_stores(given[None]), pooled_stores(expected[None]))


def test_buffers_without_ties_keep_tvm_order():
    """Also if features that are not TVM's sort key would order them differently."""
    given = np.stack([store(LARGE, TIED_HIGH), store(TIED_LOW), store()])
    np.testing.assert_array_equal(in_buffer_order(given), given)


def test_input_array_is_not_modified():
    given = store(LARGE, TIED_LOW, TIED_HIGH)[None]
    before = given.copy()
    in_buffer_order(given)
    np.testing.assert_array_equal(given, before)
