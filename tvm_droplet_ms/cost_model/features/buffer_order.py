# SPDX-License-Identifier: Apache-2.0
"""One order of the buffers of a store, the same in every process. Imports no TVM.

TVM lists the five largest buffers of a store by the cache lines and bytes that they touch
(``per_store_feature.cc``). Where two buffers touch as many, their order depends on addresses in
memory, so that one program has other features in another process.
"""

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
