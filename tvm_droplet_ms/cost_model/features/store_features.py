# SPDX-License-Identifier: Apache-2.0
"""MetaSchedule's features of each store of a program, pooled over its stores. Imports no TVM."""

import numpy as np

COMPUTATION = 57
"""Features of a store before those of its buffers."""

BUFFERS, PER_BUFFER = 5, 18
"""Buffers of a store, and features of each."""

_BYTES, _LINES = 3, 5
"""Positions of the two features that TVM sorts by, in those of a buffer."""


def in_buffer_order(stores: np.ndarray) -> np.ndarray:
    """Sort the buffers of each store by lines and bytes as TVM does, then by all other features.

    ``stores``: features of each store, of shape ``(stores, PER_STORE)``. Returns a copy with the
    buffers in order, the largest first.
    """
    ordered = stores.copy()
    stop = COMPUTATION + BUFFERS * PER_BUFFER
    buffers = stores[:, COMPUTATION:stop].reshape(len(stores), BUFFERS, PER_BUFFER)
    sizes = buffers[:, :, [_LINES, _BYTES]]
    tied = (sizes[:, 1:] == sizes[:, :-1]).all(axis=2) & buffers[:, 1:].any(axis=2)
    for row in np.flatnonzero(tied.any(axis=1)):
        keys = [*buffers[row].T[::-1], buffers[row, :, _BYTES], buffers[row, :, _LINES]]
        ordered[row, COMPUTATION:stop] = buffers[row][np.lexsort(keys)[::-1]].ravel()
    return np.asarray(ordered)


PER_STORE = 164
"""Features of a store in TVM's ``PerStoreFeature`` (``per_store_feature.cc``). Those without a unit
are ``slog(x) = log2(|x| + 1)`` of counts:

- 57 of computation: operations on floats (multiply-add, add or subtract, multiply, divide or
  modulo, compare, math function, other function), the same seven on integers, on booleans, selects;
  for each of vectorized, unrolled and parallel loops their number, product, innermost extent and
  the position of the innermost (8, one-hot); whether it is a GPU, and the extents of blockIdx x, y,
  z, threadIdx x, y, z and vthread;
- 18 of each of 5 buffers, the one of the most cache lines first: read, written or both (one-hot);
  bytes, different bytes, lines, different lines; reuse in a loop, between stores or none (one-hot);
  its distance in iterations and in bytes, and its count; the four of bytes and lines over that
  count; the stride of the innermost loop;
- 10 of arithmetic intensity: operations a byte, at tenths of the operations, from the innermost
  loop outwards;
- 4 of allocation: bytes, elements, elements of the loops outside, their ratio;
- 3 of the loops around: their product, their number, the unroll limit."""

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
