# SPDX-License-Identifier: Apache-2.0
"""What the design spaces of attention share."""

import math
from collections.abc import Sequence

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ExprRV, LoopRV, SBlockRV

from ....design_space.dot_products.dot_intrinsics import HALF, Dot, register_dots
from ....design_space.register_tiles.tiling import FINISHED, perfect_tile
from .attention_packing import LANES, PAIR

_MOST_VECTORS = 4
"""The most vectors of values that are computed together."""

_MOST_COLUMNS = 512
"""The most values that are kept in the first cache while they serve all rows of a tile."""


def inline_others(schedule: Schedule, stages: Sequence[str]) -> SBlockRV:
    """Inline what is no stage, and return the block of the result."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    *others, last = [block for block in blocks if schedule.get(block).name_hint not in stages]
    for block in others:
        schedule.compute_inline(block)
    return last


def sample(schedule: Schedule, candidates: list[int]) -> ExprRV:
    """Sample one of some numbers, each as likely."""
    share = 1.0 / len(candidates)
    return schedule.sample_categorical(candidates, [share] * len(candidates))


def products_of_values(
    schedule: Schedule,
    mixed: SBlockRV,
    together: ExprRV | int,
    lanes: int,
    most: int = _MOST_VECTORS,
) -> None:
    """Multiply weights by values: rows times vectors of a value, in registers.

    ``together``: the rows that are multiplied together. ``lanes``: of a vector. ``most``: of a
    row's vectors together.
    """
    *_, rows, width, columns = schedule.get_loops(mixed)
    row, register_row = schedule.split(rows, [None, together])
    vectors, lane = schedule.split(width, [None, lanes])
    outer, vector = perfect_tile(schedule, vectors, 2, min(most, _MOST_VECTORS))
    for loop in (register_row, vector):
        schedule.unroll(loop)
    if is_of_halves(schedule):
        steps, pair = schedule.split(columns, [None, PAIR])
        part, step = perfect_tile(schedule, steps, 2, _MOST_COLUMNS // PAIR)
        schedule.reorder(part, outer, row, step, register_row, vector, lane, pair)
        tensorize(schedule, (part, vector, lane), lanes)
    else:
        part, column = perfect_tile(schedule, columns, 2, _MOST_COLUMNS)
        schedule.reorder(part, outer, row, column, register_row, vector, lane)
        schedule.vectorize(lane)


def tensorize(schedule: Schedule, loops: tuple[LoopRV, LoopRV, LoopRV], lanes: int) -> None:
    """Add up pairs of bfloat16 by an intrinsic.

    ``loops``: the outermost one that adds up; the one around the loop over so many ``lanes``; and
    that loop, around one over the pair.
    """
    sums, around, lane = loops
    register_dots()
    block = schedule.blockize(lane)
    zeros = schedule.decompose_reduction(block, sums)
    schedule.vectorize(schedule.get_loops(schedule.get_child_blocks(zeros)[0])[-1])
    for loop in (around, schedule.get_loops(zeros)[-1]):
        schedule.annotate(loop, FINISHED, 1)
    schedule.tensorize(block, half_dot(lanes).name)


def half_dot(lanes: int) -> Dot:
    """The intrinsic that adds up pairs of bfloat16."""
    return Dot(lanes, PAIR, HALF, HALF)


def vectorize(schedule: Schedule, block: SBlockRV, lanes: int = LANES) -> None:
    """Vectorize the innermost loop of a block, in vectors of so many floats where they fit."""
    loop = schedule.get_loops(block)[-1]
    extent = int(schedule.get(loop).extent)
    schedule.vectorize(schedule.split(loop, [None, math.gcd(extent, lanes)])[1])


def is_of_halves(schedule: Schedule) -> bool:
    """True if the products are of bfloat16."""
    (queries,) = schedule.get(schedule.get_sblock("queries")).writes
    return str(queries.source.dtype) == HALF


def reduce_lanes(schedule: Schedule) -> None:
    """Reduce the rows of scores lane by lane, and then the lanes."""
    for name in ("largest_of_lane", "total_of_lane"):
        *_, lane, panel = schedule.get_loops(schedule.get_sblock(name))
        schedule.reorder(panel, lane)
        schedule.vectorize(lane)
    for name in ("largest", "total"):
        # Vectors of rows would gather their lanes. MetaSchedule leaves loops with a mark alone.
        loop = schedule.get_loops(schedule.get_sblock(name))[-1]
        schedule.annotate(loop, "is_scalar", 1)
