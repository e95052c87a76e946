# SPDX-License-Identifier: Apache-2.0
"""Schedule steps that the design spaces of attention share."""

import math
from collections.abc import Sequence

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ExprRV, LoopRV, SBlockRV

from ....design_space.dot_products.dot_intrinsics import HALF, Dot, register_dots
from ....design_space.register_tiles.tiling import FINISHED, perfect_tile
from .attention_packing import LANES, PAIR

_MOST_VECTORS = 4
"""Maximum number of value vectors that are computed together."""

_MOST_COLUMNS = 512
"""Maximum number of values that stay in the L1 cache while all rows of a tile use them."""


def inline_others(schedule: Schedule, stages: Sequence[str]) -> SBlockRV:
    """Inline all blocks that are not stages, and return the block of the result."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    *others, last = [block for block in blocks if schedule.get(block).name_hint not in stages]
    for block in others:
        schedule.compute_inline(block)
    return last


def products_of_values(
    schedule: Schedule,
    mixed: SBlockRV,
    together: ExprRV | int,
    lanes: int,
    most: int = _MOST_VECTORS,
) -> None:
    """Multiply weights by values: rows times vectors of a value, in registers.

    ``together``: the number of rows that are multiplied together. ``lanes``: the lanes of a vector.
    ``most``: the maximum vectors of a row that are multiplied together.
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
    """Sum products of bfloat16 pairs with an intrinsic.

    ``loops``: the outermost reduction loop; the loop around the loop over ``lanes``; and the loop
    over ``lanes``, which contains the loop over the pair.
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
    """Return the intrinsic that sums products of bfloat16 pairs."""
    return Dot(lanes, PAIR, HALF, HALF)


def vectorize(schedule: Schedule, block: SBlockRV, lanes: int = LANES) -> None:
    """Vectorize the innermost loop of a block by the GCD of its extent and ``lanes``."""
    loop = schedule.get_loops(block)[-1]
    extent = int(schedule.get(loop).extent)
    schedule.vectorize(schedule.split(loop, [None, math.gcd(extent, lanes)])[1])


def is_of_halves(schedule: Schedule) -> bool:
    """Return whether the products are in bfloat16."""
    (queries,) = schedule.get(schedule.get_sblock("queries")).writes
    return str(queries.source.dtype) == HALF


def reduce_lanes(schedule: Schedule) -> None:
    """Schedule the row reductions of scores: lane by lane, and then over the lanes."""
    for name in ("largest_of_lane", "total_of_lane"):
        *_, lane, panel = schedule.get_loops(schedule.get_sblock(name))
        schedule.reorder(panel, lane)
        schedule.vectorize(lane)
    for name in ("largest", "total"):
        # Vectors over rows would gather their lanes. MetaSchedule leaves annotated loops alone.
        loop = schedule.get_loops(schedule.get_sblock(name))[-1]
        schedule.annotate(loop, "is_scalar", 1)
