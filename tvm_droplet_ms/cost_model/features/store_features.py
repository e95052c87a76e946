# SPDX-License-Identifier: Apache-2.0
"""MetaSchedule's features of each store of a program, pooled over its stores. Imports no TVM."""

import numpy as np

from .buffer_order import in_buffer_order

PER_STORE = 164
"""Features of a store in TVM's ``PerStoreFeature`` (``per_store_feature.cc``): 57 of computation,
18 of each of 5 buffers, 10 of arithmetic intensity, 4 of allocation, 3 of the loops around."""

_OPERATIONS = 16
"""The first features are the counts of operations of 16 kinds, as logarithms."""

LARGEST = 3
"""Stores that keep a row of their own: those of the most operations."""

STORE_FEATURES = (2 + LARGEST) * PER_STORE
"""Features of ``pooled_stores``."""


def pooled_stores(stores: np.ndarray) -> np.ndarray:
    """Pool the features of a program's stores to a length that does not depend on their number.

    ``stores``: the features of each store, in the program's order, of shape ``(stores,
    PER_STORE)``. Returns their sum, their maximum, and those of the ``LARGEST`` stores of the most
    operations, the first of equal ones first: of shape ``(STORE_FEATURES,)``, float32; zeros where
    there is no store.
    """
    features = np.zeros((2 + LARGEST, PER_STORE), dtype=np.float32)
    if len(stores):
        stores = in_buffer_order(stores)
        largest = largest_stores(stores, LARGEST)
        features[0], features[1] = stores.sum(axis=0), stores.max(axis=0)
        features[2 : 2 + len(largest)] = largest
    return features.ravel()


def largest_stores(stores: np.ndarray, count: int) -> np.ndarray:
    """The features of the stores of the most operations, the first of equal ones first.

    ``stores``: the features of each store, of shape ``(stores, PER_STORE)``. ``count``: maximum
    number of stores. Returns an array of shape ``(at most count, PER_STORE)``.
    """
    operations = stores[:, :_OPERATIONS].sum(axis=1)
    return np.asarray(stores[np.argsort(-operations, kind="stable")[:count]])
