# SPDX-License-Identifier: Apache-2.0
"""The annotations of TVM's postprocessors, for many points at once. Imports no TVM.

``RewriteParallelVectorizeUnroll`` chooses the loops that it fuses into a parallel and into a
vectorised one from their extents, their kinds and the strides of the accesses
(``rewrite_parallel_vectorize_unroll.cc``, ``AdjustParallelVectorize``). Loops come the innermost
first.
"""

from collections.abc import Sequence

import numpy as np


def fusible_loops(extents: np.ndarray, strides: Sequence[np.ndarray]) -> np.ndarray:
    """The number of innermost loops that every access walks through contiguously.

    ``extents``: the iterations of each loop, of shape ``(loops, points)``. ``strides``: for each
    access, the elements that a step of each loop moves, of the same shape. Returns values of shape
    ``(points,)``.
    """
    loops, points = extents.shape
    count = np.full(points, loops)
    for steps in strides:
        fusible = np.zeros(points, dtype=int)
        goes_on = np.ones(points, dtype=bool)
        following = np.zeros(points)  # The stride of a loop that continues the ones within it.
        for extent, step in zip(extents, steps, strict=True):
            is_first = (step != 0) & (following == 0)
            breaks = np.where(is_first, (step != 1) & (fusible != 0), step != following)
            goes_on &= (step == 0) | ~breaks
            fusible += goes_on
            following = np.where(goes_on & (step != 0), step * extent, following)
        count = np.minimum(count, fusible)
    return count


def vector_extent(
    extents: np.ndarray,
    strides: Sequence[np.ndarray],
    reduces: Sequence[bool],
    single: Sequence[bool],
    limit: np.ndarray,
) -> np.ndarray:
    """The extent of the loop that is vectorised; 1 where none is.

    - ``extents``: the iterations of each loop, of shape ``(loops, points)``.
    - ``strides``: for each access, the elements that a step of each loop moves, of the same shape.
    - ``reduces``: whether each loop runs over a reduced axis: these are not vectorised.
    - ``single``: whether the body of each loop is one statement.
    - ``limit``: the largest extent, of shape ``(points,)``.

    Returns values of shape ``(points,)``.
    """
    fusible = fusible_loops(extents, strides)
    vector = np.ones(extents.shape[1])
    goes_on = np.ones(extents.shape[1], dtype=bool)
    for number, extent in enumerate(extents):
        if reduces[number] or not single[number]:
            break
        goes_on &= (number < fusible) & (vector * extent <= limit)
        vector = np.where(goes_on, vector * extent, vector)
    return vector


def parallel_extent(
    extents: np.ndarray, reduces: Sequence[bool], single: Sequence[bool], limit: np.ndarray
) -> np.ndarray:
    """The extent of the loop that is run in parallel; 1 where none is.

    Loops are fused from the outermost on, the one that exceeds the limit included. The parameters
    are those of ``vector_extent``; a limit of 0 is none, and nothing is fused.
    """
    parallel = np.ones(extents.shape[1])
    goes_on = limit > 0
    for number in range(len(extents) - 1, -1, -1):
        if reduces[number]:
            break
        parallel = np.where(goes_on, parallel * extents[number], parallel)
        goes_on &= parallel <= limit
        if not single[number]:
            break
    return parallel
