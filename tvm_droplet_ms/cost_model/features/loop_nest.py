# SPDX-License-Identifier: Apache-2.0
"""Features of the loops around each block of a scheduled module."""

from collections.abc import Sequence

import numpy as np

from .loop_context import LoopNest

BLOCKS = 6
"""Blocks kept, in the order of the module."""

LOOPS = 20
"""Loops kept of a block, the innermost first."""

LOOP_NEST_FEATURES = BLOCKS * (3 * LOOPS + 2)
"""Features of ``loop_nest_features``."""


def loop_nest_features(nests: Sequence[LoopNest]) -> np.ndarray:
    """Tiling of the loops around each innermost block, which per-store features average away.

    For each loop of a block, the innermost first: the logarithm to base 2 of its extent, that of
    the product of the extents so far, and its kind (0 serial, 1 parallel, 2 vectorized, 3
    unrolled). Then the block's unroll limit and its number of loops. ``nests``: the loop nests of a
    scheduled module, in its order. Returns an array of shape ``(LOOP_NEST_FEATURES,)``, float32; 0
    for missing blocks and loops.
    """
    features = np.zeros((BLOCKS, 3 * LOOPS + 2), dtype=np.float32)
    for row, nest in zip(features, nests, strict=False):
        columns = [np.log2(nest.extents), np.log2(nest.iterations), nest.kinds]
        loops = np.stack(columns, axis=1)[:LOOPS].ravel()
        row[: len(loops)] = loops
        row[-2:] = nest.unroll_limit, len(nest.extents)
    return features.ravel()
