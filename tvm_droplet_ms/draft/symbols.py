# SPDX-License-Identifier: Apache-2.0
"""Symbols of many schedules at once: what their loop nests cost, without a replay.

The symbols follow those of Pruner (Qiao et al., ASPLOS 2025, section 4): allocation, traffic,
parallelism and alignment at each level of the memory, counted from the tile sizes. Here every one
is a logarithm to base 2, relative to the operations of the workload, so that a number means the
same in every workload.
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
    """The extent of the loop that is vectorized; 1 where none is.

    - ``extents``: the iterations of each loop, of shape ``(loops, points)``.
    - ``strides``: for each access, the elements that a step of each loop moves, of the same shape.
    - ``reduces``: whether each loop runs over a reduced axis: these are not vectorized.
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


SIZES = 2.0 ** np.arange(6, 25, 2)
"""Bytes that the loops within a level of the memory touch, from a line to the last-level cache."""

ACCESSES = 3
"""Accesses kept of a nest: the write, then those that touch most."""

INNERMOST = 4
"""Innermost loops whose extents are symbols of their own."""

LINE = 64.0
"""Bytes of a cache line."""


@dataclass(frozen=True)
class NestValues:
    """The loop nest of one block, for many points.

    - ``extents``: the iterations of each loop, the innermost first, of shape ``(loops, points)``.
    - ``touched``, ``runs``, ``strides``: of each access, of shape ``(accesses, loops, points)``;
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
    """The limits that a sketch sets the postprocessors, for many points.

    ``parallel``, ``vector``, ``unroll``: the limits that the root block is annotated with, of shape
    ``(points,)``; 0 for none.
    """

    parallel: np.ndarray
    vector: np.ndarray
    unroll: np.ndarray


OF_NEST = 2 * len(SIZES) + ACCESSES * (len(SIZES) + 2) + INNERMOST + 7
"""Symbols of one nest."""

NESTS = 2
"""Nests kept, by their operations."""

SYMBOLS = NESTS * OF_NEST + len(SIZES) + 5
"""Symbols of a schedule."""

SCHEMA = f"1: {SYMBOLS} symbols"
"""Version of the symbols; change it whenever one changes its meaning."""


def symbols(nests: Sequence[NestValues], limits: Limits) -> np.ndarray:
    """The symbols of many schedules of one key.

    ``nests``: the nests that have loops and accesses, in the order of the module; at least one.
    ``limits``: what may be annotated. Returns values of shape ``(points, SYMBOLS)``, float32.
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
    """The largest loops whose bytes fit each size, and the bytes that move into it.

    Returns ``within``: the iterations within the size, of shape ``(sizes, points)``; ``moved``: the
    bytes that each access moves, of shape ``(accesses, sizes, points)``; ``fitting``: the number of
    loops that fit, of shape ``(sizes, points)``.
    """
    together = nest.touched.sum(axis=0)
    fitting = (together[None] <= SIZES[:, None, None]).sum(axis=1)
    ones = np.ones_like(nest.extents[:1])
    iterations = np.concatenate([ones, nest.iterations])
    # Where not even the innermost loop fits, each iteration moves its share of what that touches.
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
    # Vectors of 16 single-precision numbers: the share of lanes that work.
    rows.append(np.log2(vector / (np.ceil(vector / 16.0) * 16.0)))
    rows.append(np.log2(np.minimum(limits.unroll, nest.iterations[-1]) + 1.0))
    rows += [np.log2(count) for count in within]
    rows += [np.log2(1.0 + bytes_) - scale for bytes_ in moved.sum(axis=0)]
    rows += _of_accesses(nest, moved, fitting, scale)
    padded = [*nest.extents, *np.ones((INNERMOST, len(scale)))][:INNERMOST]
    rows += [np.log2(extent) for extent in padded]
    return rows


def _register_tile(nest: NestValues) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The iterations of the innermost straight-line tile, its reduced part, and its outputs.

    The tile is what lies within the outermost of the innermost reduced loops: the data-parallel
    loops within them, and these.
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
    """The traffic of the accesses that move most, and how contiguous they are."""
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
