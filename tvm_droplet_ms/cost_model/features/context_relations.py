# SPDX-License-Identifier: Apache-2.0
"""Context relation features of loop nests, of a length independent of the number of loops.

See the context relation features in "Learning to Optimize Tensor Programs" (Chen et al., 2018):
for two features i and j of the loops k, R_t = max {Z_ki : Z_kj <= beta_t}. The thresholds beta_t do
not depend on the workload. Imports no TVM.
"""

from collections.abc import Sequence

import numpy as np

from ..nests import LoopNest

SIZES = 2.0 ** np.arange(4, 25)
"""The thresholds: sizes of a cache in bytes, from 16 B to 16 MiB."""

NESTS = 3
"""Number of loop nests kept: the nests with the most iterations."""

ACCESSES = 4
"""Number of accesses kept per nest: the accesses that touch the most bytes."""

_STRIDE = 2
"""The traffic of a single access is kept at every second size."""

_OF_NEST = 2 * len(SIZES) + ACCESSES * len(SIZES[::_STRIDE])

RELATIONS = len(SIZES) + NESTS * _OF_NEST
"""Number of features of ``relations``."""


def relations(nests: Sequence[LoopNest]) -> np.ndarray:
    """The iterations that fit in a cache of each size, and the traffic into the cache.

    The traffic is the bytes touched by the largest loop whose working set fits, times the number of
    times that this loop is entered. The first features are the total traffic of all nests at each
    of ``SIZES``. Then each of the ``NESTS`` nests with the most iterations has: the iterations that
    fit in each size; the traffic at each size; and the traffic of each of the ``ACCESSES`` accesses
    that touch the most bytes, at every second size. ``nests``: the loop nests of a module. Returns
    logarithms to base 2 of iterations and of bytes plus one, of shape ``(RELATIONS,)``, float32; 0
    for missing nests and accesses.
    """
    known = [nest for nest in nests if len(nest.iterations) and nest.accesses]
    known.sort(key=lambda nest: -nest.iterations[-1])
    features = np.zeros(RELATIONS)
    within, traffics = zip(*map(_at_each_size, known), strict=True) if known else ((), ())
    together = sum((traffic.sum(axis=0) for traffic in traffics), np.zeros(len(SIZES)))
    features[: len(SIZES)] = np.log2(1.0 + together)
    for place, (nest, fitting, traffic) in enumerate(zip(known, within, traffics, strict=True)):
        if place == NESTS:
            break
        start = len(SIZES) + place * _OF_NEST
        totals = [-access.touched[-1] for access in nest.accesses]
        largest = np.argsort(totals, kind="stable")[:ACCESSES]
        parts = [fitting, 1.0 + traffic.sum(axis=0), 1.0 + traffic[largest, ::_STRIDE].ravel()]
        of_nest = np.log2(np.concatenate(parts))
        features[start : start + len(of_nest)] = of_nest
    return features.astype(np.float32)


def _at_each_size(nest: LoopNest) -> tuple[np.ndarray, np.ndarray]:
    """The iterations that fit each of ``SIZES``, and the bytes each access moves into it.

    A size holds the outermost loop whose working set fits. If not even the innermost loop fits,
    every iteration moves all bytes that it touches. Returns ``iterations``: array of shape
    ``(sizes,)``; ``traffic``: bytes, of shape ``(accesses, sizes)``.
    """
    touched = np.array([access.touched for access in nest.accesses])
    # Index -1, the last column, is a single iteration.
    fitting = np.searchsorted(touched.sum(axis=0), SIZES, side="right") - 1
    iterations = np.append(nest.iterations, 1.0)[fitting]
    per_iteration = touched[:, :1] / nest.iterations[0]
    moved = np.concatenate([touched, per_iteration], axis=1)[:, fitting]
    return iterations, moved * (nest.iterations[-1] / iterations)


BLOCKS = 6
"""Number of blocks kept, in the order of the module."""

LOOPS = 20
"""Number of loops kept per block, the innermost first."""

LOOP_NEST_FEATURES = BLOCKS * (3 * LOOPS + 2)
"""Number of features of ``loop_nest_features``."""


def loop_nest_features(nests: Sequence[LoopNest]) -> np.ndarray:
    """Tiling of the loops around each innermost block, which per-store features average away.

    For each loop of a block, the innermost first: the logarithm to base 2 of its extent, the
    logarithm of the product of the extents so far, and its kind (0 serial, 1 parallel, 2
    vectorized, 3 unrolled). Then the block's unroll limit and its number of loops. ``nests``: the
    loop nests of a scheduled module, in the module's order. Returns an array of shape
    ``(LOOP_NEST_FEATURES,)``, float32; 0 for missing blocks and loops.
    """
    features = np.zeros((BLOCKS, 3 * LOOPS + 2), dtype=np.float32)
    for row, nest in zip(features, nests, strict=False):
        columns = [np.log2(nest.extents), np.log2(nest.iterations), nest.kinds]
        loops = np.stack(columns, axis=1)[:LOOPS].ravel()
        row[: len(loops)] = loops
        row[-2:] = nest.unroll_limit, len(nest.extents)
    return features.ravel()
