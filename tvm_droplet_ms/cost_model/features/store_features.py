# SPDX-License-Identifier: Apache-2.0
"""MetaSchedule's features of each store of a program, pooled over its stores. Imports no TVM."""

import numpy as np

COMPUTATION = 57
"""Number of features of a store's computation, which precede the features of its buffers."""

BUFFERS, PER_BUFFER = 5, 18
"""Number of buffers of a store, and number of features of each buffer."""

_BYTES, _LINES = 3, 5
"""Positions, among a buffer's features, of the two features that TVM sorts by."""


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
"""Number of features of a store in TVM's ``PerStoreFeature`` (``per_store_feature.cc``). Counts are
given as ``slog(x) = log2(|x| + 1)``:

- 57 of computation: operations on floats (multiply-add, add or subtract, multiply, divide or
  modulo, compare, math function, other function), the same seven on integers, operations on
  booleans, selects; for vectorized, unrolled and parallel loops each, their number, product,
  innermost extent and the position of the innermost loop (8, one-hot); whether the target is a GPU,
  and the extents of blockIdx x, y, z, threadIdx x, y, z and vthread;
- 18 for each of 5 buffers, sorted by cache lines in descending order: read, written or both
  (one-hot); bytes, unique bytes, lines, unique lines; reuse in a loop, between stores or none
  (one-hot); the reuse distance in iterations and in bytes, and the reuse count; the four features
  of bytes and lines divided by the reuse count; the stride of the innermost loop;
- 10 of arithmetic intensity: operations per byte, at tenths of the operations, from the innermost
  loop outward;
- 4 of allocation: bytes, elements, elements of the outer loops, their ratio;
- 3 of the surrounding loops: their product, their number, the unroll limit."""

_OPERATIONS = 16
"""The first 16 features are the logarithmic counts of 16 kinds of operations."""

LARGEST = 3
"""Number of stores that keep their own row: the stores with the most operations."""

STORE_FEATURES = (2 + LARGEST) * PER_STORE
"""Number of features of ``pooled_stores``."""


def pooled_stores(stores: np.ndarray) -> np.ndarray:
    """Pool the features of a program's stores to a length that does not depend on their number.

    ``stores``: the features of each store, in the program's order, of shape ``(stores,
    PER_STORE)``. Returns their sum, their maximum, and the features of the ``LARGEST`` stores with
    the most operations; ties keep the program's order. The array has the shape
    ``(STORE_FEATURES,)``, float32; zeros for missing stores.
    """
    features = np.zeros((2 + LARGEST, PER_STORE), dtype=np.float32)
    if len(stores):
        stores = in_buffer_order(stores)
        largest = largest_stores(stores, LARGEST)
        features[0], features[1] = stores.sum(axis=0), stores.max(axis=0)
        features[2 : 2 + len(largest)] = largest
    return features.ravel()


def largest_stores(stores: np.ndarray, count: int) -> np.ndarray:
    """The features of the stores with the most operations; ties keep their order.

    ``stores``: the features of each store, of shape ``(stores, PER_STORE)``. ``count``: maximum
    number of stores. Returns an array of shape ``(at most count, PER_STORE)``.
    """
    operations = stores[:, :_OPERATIONS].sum(axis=1)
    return np.asarray(stores[np.argsort(-operations, kind="stable")[:count]])
