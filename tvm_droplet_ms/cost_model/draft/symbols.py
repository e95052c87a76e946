# SPDX-License-Identifier: Apache-2.0
"""Symbols of many schedules at once: cost features of loop nests, without a replay.

The symbols follow Pruner (Qiao et al., ASPLOS 2025, section 4): allocation, traffic, parallelism
and alignment at each level of the memory, counted from the tile sizes. Here each symbol is a
base-2 logarithm relative to the operations of the workload, so that it means the same in every
workload.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
        following = np.zeros(points)  # The stride at which a loop continues its inner loops.
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
    """The extent of the vectorized loop; 1 without one.

    - ``extents``: the iterations of each loop, of shape ``(loops, points)``.
    - ``strides``: for each access, the elements that a step of each loop moves, of the same shape.
    - ``reduces``: whether each loop runs over a reduction axis; such loops are not vectorized.
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
    """The extent of the parallel loop; 1 without one.

    Loops are fused from the outermost inward, up to and including the loop that exceeds the limit.
    With a limit of 0, nothing is fused. ``vector_extent`` describes the parameters.
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


SIZES = 2.0 ** np.arange(6, 25, 2)
"""Sizes in bytes of the levels of the memory, from a cache line to the last-level cache."""

ACCESSES = 3
"""Number of accesses kept per nest: the write, then the accesses that touch the most bytes."""

INNERMOST = 4
"""Number of innermost loops whose extents are symbols."""

LINE = 64.0
"""Bytes of a cache line."""


@dataclass(frozen=True)
class NestValues:
    """The loop nest of one block, for many points.

    - ``extents``: the iterations of each loop, the innermost first, of shape ``(loops, points)``.
    - ``touched``, ``runs``, ``strides``: for each access, of shape ``(accesses, loops, points)``;
      see ``skeleton.NestAccess``. The writes come first.
    - ``itemsizes``: the bytes of an element of each access.
    - ``reduces``, ``single``: see ``skeleton.Nest``.
    - ``operations``: the arithmetic operations of one execution of the block.
    """

    extents: np.ndarray
    touched: np.ndarray
    runs: np.ndarray
    strides: np.ndarray
    itemsizes: Sequence[int]
    reduces: Sequence[bool]
    single: Sequence[bool]
    operations: float

    @property
    def iterations(self) -> np.ndarray:
        """Executions of the block in one run of each loop, of shape ``(loops, points)``."""
        return np.cumprod(self.extents, axis=0)


@dataclass(frozen=True)
class Limits:
    """The limits that a sketch sets for the postprocessors, for many points.

    ``parallel``, ``vector``, ``unroll``: the limits annotated on the root block, of shape
    ``(points,)``; 0 for none.
    """

    parallel: np.ndarray
    vector: np.ndarray
    unroll: np.ndarray


OF_NEST = 2 * len(SIZES) + ACCESSES * (len(SIZES) + 2) + INNERMOST + 7
"""Number of symbols of one nest."""

NESTS = 2
"""Number of nests kept: the nests with the most operations."""

SYMBOLS = NESTS * OF_NEST + len(SIZES) + 5
"""Number of symbols of a schedule."""

SCHEMA = f"1: {SYMBOLS} symbols"
"""Version of the symbols; change it whenever a symbol changes its meaning."""


def symbols(nests: Sequence[NestValues], limits: Limits) -> np.ndarray:
    """The symbols of many schedules of one key.

    ``nests``: the nests that have loops and accesses, in the order of the module; at least one.
    ``limits``: the annotated limits. Returns values of shape ``(points, SYMBOLS)``, float32.
    """
    works = [nest.iterations[-1] * max(nest.operations, 1.0) for nest in nests]
    main = int(np.argmax([work.mean() for work in works]))
    scale = np.log2(works[main])
    levels = [_levels(nest) for nest in nests]
    traffic = np.sum([moved.sum(axis=0) for _, moved, _ in levels], axis=0)
    others = [number for number in range(len(nests)) if number != main]
    work_beside = sum((works[number] for number in others), np.zeros_like(scale))
    vectors = [_vector(nest, limits) for nest in nests]
    scalar_beside = sum((works[n] / vectors[n] for n in others), np.zeros_like(scale))
    largest = sorted(range(len(nests)), key=lambda number: -works[number].mean())[:NESTS]
    of_nests = [_of_nest(nests[n], levels[n], vectors[n], limits, scale) for n in largest]
    missing = NESTS - len(largest)
    rows = [
        *(row for rows in of_nests for row in rows),
        *([np.zeros_like(scale)] * (missing * OF_NEST)),
        *(np.log2(1.0 + traffic) - scale),
        np.log2(1.0 + work_beside) - scale,
        np.log2(1.0 + scalar_beside) - scale,
        np.full_like(scale, len(nests)),
        np.log2(1.0 + limits.unroll),
        np.log2(np.maximum(1.0, limits.parallel)),
    ]
    return np.stack(rows, axis=1).astype(np.float32)


def _levels(nest: NestValues) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The largest loops whose bytes fit in each size, and the bytes that move into it.

    Returns ``within``: the iterations within the size, of shape ``(sizes, points)``; ``moved``: the
    bytes that each access moves, of shape ``(accesses, sizes, points)``; ``fitting``: the number of
    loops that fit, of shape ``(sizes, points)``.
    """
    together = nest.touched.sum(axis=0)
    fitting = (together[None] <= SIZES[:, None, None]).sum(axis=1)
    ones = np.ones_like(nest.extents[:1])
    iterations = np.concatenate([ones, nest.iterations])
    # Where even the innermost loop does not fit, each iteration moves its share of the bytes.
    share = nest.touched[:, :1] / nest.extents[:1]
    touched = np.concatenate([share, nest.touched], axis=1)
    points = np.arange(nest.extents.shape[1])
    within = iterations[fitting, points]
    moved = touched[:, fitting, points] * (iterations[-1] / within)
    return within, moved, fitting


def _vector(nest: NestValues, limits: Limits) -> np.ndarray:
    return vector_extent(
        nest.extents, list(nest.strides), nest.reduces, nest.single, np.maximum(limits.vector, 1.0)
    )


def _of_nest(
    nest: NestValues,
    levels: tuple[np.ndarray, np.ndarray, np.ndarray],
    vector: np.ndarray,
    limits: Limits,
    scale: np.ndarray,
) -> list[np.ndarray]:
    within, moved, fitting = levels
    parallel = parallel_extent(nest.extents, nest.reduces, nest.single, limits.parallel)
    tile, reduced, outputs = _register_tile(nest)
    rows = [np.log2(vector), np.log2(parallel), np.log2(tile), np.log2(reduced), np.log2(outputs)]
    # The share of active lanes, for vectors of 16 single-precision numbers.
    rows.append(np.log2(vector / (np.ceil(vector / 16.0) * 16.0)))
    rows.append(np.log2(np.minimum(limits.unroll, nest.iterations[-1]) + 1.0))
    rows += [np.log2(count) for count in within]
    rows += [np.log2(1.0 + bytes_) - scale for bytes_ in moved.sum(axis=0)]
    rows += _of_accesses(nest, moved, fitting, scale)
    padded = [*nest.extents, *np.ones((INNERMOST, len(scale)))][:INNERMOST]
    rows += [np.log2(extent) for extent in padded]
    return rows


def _register_tile(nest: NestValues) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The spatial iterations, the reduction iterations and the outputs of the register tile.

    The tile consists of the innermost data-parallel loops and the reduction loops directly around
    them.
    """
    points = nest.extents.shape[1]
    spatial = reduced = np.ones(points)
    depth = 0
    while depth < len(nest.reduces) and not nest.reduces[depth]:
        spatial = spatial * nest.extents[depth]
        depth += 1
    outputs = nest.touched[0, max(depth - 1, 0)] / nest.itemsizes[0]
    while depth < len(nest.reduces) and nest.reduces[depth]:
        reduced = reduced * nest.extents[depth]
        depth += 1
    return spatial, reduced, np.maximum(outputs, 1.0)


def _of_accesses(
    nest: NestValues, moved: np.ndarray, fitting: np.ndarray, scale: np.ndarray
) -> list[np.ndarray]:
    """The traffic, the contiguity and the innermost stride of the kept accesses."""
    totals = nest.touched[1:, -1].mean(axis=1)
    kept = [0, *(1 + np.argsort(-totals, kind="stable"))][:ACCESSES]
    points = np.arange(len(scale))
    near = np.clip(fitting[np.searchsorted(SIZES, 2.0**14)] - 1, 0, None)
    rows: list[np.ndarray] = []
    for access in kept:
        run = nest.runs[access][near, points]
        rows += [np.log2(1.0 + bytes_) - scale for bytes_ in moved[access]]
        rows.append(np.log2(run / (np.ceil(run / LINE) * LINE)))
        rows.append(np.log2(1.0 + nest.strides[access, 0]))
    missing = ACCESSES - len(kept)
    rows += [np.zeros_like(scale)] * (missing * (len(SIZES) + 2))
    return rows
