# SPDX-License-Identifier: Apache-2.0
"""Design spaces for fused attention on a CPU."""

import math

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ExprRV, LoopRV, SBlockRV

from ....design_space.dot_products.dot_intrinsics import imported_code
from ....design_space.dot_products.dot_rule import IMPORTED
from ....design_space.matrix_tiles.tile_loops import TileCopies
from ....design_space.register_tiles.tiling import FINISHED, perfect_tile
from .attention_compute import row_unit
from .attention_packing import LANES, PAIR
from .attention_tiles import (
    AttentionTiles,
    attention_tiles,
    copy_keys,
    copy_values,
    multiply_keys,
    multiply_values,
    panels_first,
)
from .stages import (
    half_dot,
    inline_others,
    is_of_halves,
    products_of_values,
    reduce_lanes,
    sample,
    tensorize,
    vectorize,
)

_MOST_ROWS, _MOST_PANELS = 8, 4
"""Maximum rows, and panels of keys, that are computed together."""

_OF_A_TILE = (
    *("mixed", "total", "total_of_lane", "weights", "largest", "largest_of_lane"),
    *("scores", "queries"),
)
"""The stages that are computed for each tile of rows, the last one first."""


_PACKED = ("keys", "values")

_STAGES = (*_OF_A_TILE, *_PACKED, "normal")

_MOST_TILE_ROWS, _MOST_TILE_BYTES = 64, 1 << 21
"""Maximum rows of a tile, and maximum bytes of its scores and weights: the size of an L2 cache. A
tile with the fewest rows may exceed the bytes."""


def schedule_attention(schedule: Schedule, normal: SBlockRV) -> list[Schedule]:
    """Return two design spaces: keys and values are packed per head, or all in advance.

    A tile of rows goes through all stages. Products are accumulated in registers: rows times
    panels of scores, and rows times vectors of values. The consumers of the attention in the kernel
    are computed for each tile too.
    """
    last = inline_others(schedule, _STAGES)
    beforehand = schedule.copy()
    _pack(schedule, _tile(schedule, normal, last))
    _tile(beforehand, normal, last)
    _pack(beforehand)
    return [schedule, beforehand]


def schedule_attention_in_tiles(schedule: Schedule, normal: SBlockRV) -> list[Schedule]:
    """Return both design spaces with bfloat16 matrix tiles, for each combination of tiles."""
    last = inline_others(schedule, _STAGES)
    spaces = []
    for tiles in attention_tiles(schedule):
        # TVM cannot copy a schedule that has intrinsics.
        space, beforehand = schedule.copy(), schedule.copy()
        _pack(space, _tile(space, normal, last, tiles))
        _tile(beforehand, normal, last, tiles)
        _pack(beforehand)
        spaces += [space, beforehand]
    return spaces


def _pack(schedule: Schedule, head: LoopRV | None = None) -> None:
    """Pack keys and values: for each head if its loop is given, otherwise all in advance."""
    for name in _PACKED:
        block = schedule.get_sblock(name)
        if head is not None:
            schedule.compute_at(block, head, preserve_unit_loops=True)
            if is_of_halves(schedule):
                # LLVM takes 20 s for some hundred vectors whose elements are gathered singly.
                schedule.annotate(schedule.get_loops(block)[1], "pragma_auto_unroll_max_step", 0)
    for name in _PACKED:
        block = schedule.get_sblock(name)
        if is_of_halves(schedule):
            schedule.fuse(*schedule.get_loops(block)[-2:])
            vectorize(schedule, block, PAIR * LANES)
        else:
            vectorize(schedule, block)


def _tile(
    schedule: Schedule, normal: SBlockRV, last: SBlockRV, tiles: AttentionTiles | None = None
) -> LoopRV:
    """Compute all stages for a tile of rows; return the loop over the heads."""
    block = schedule.get_sblock
    *batch, rows, width = schedule.get_loops(normal)
    lanes = math.gcd(int(schedule.get(width).extent), LANES)
    extent = int(schedule.get(rows).extent)
    unit = row_unit(extent) if tiles is None else tiles.rows
    together: ExprRV | int = unit
    if tiles is None:
        together = sample(schedule, [n for n in range(2, _MOST_ROWS + 1) if unit % n == 0])
    row_bytes = 8 * _columns(schedule)
    tile_rows = sample(schedule, _tile_extents(extent, unit, row_bytes))
    if is_of_halves(schedule):
        # MetaSchedule cannot parallelize a loop around a decomposed reduction.
        batch = [schedule.fuse(*batch)]
        schedule.parallel(batch[-1])
        schedule.annotate(batch[-1], FINISHED, 1)
        # On the outermost loop: an unrolled loop would import the functions many times.
        dots = [half_dot(each) for each in sorted({LANES, lanes})]
        code = " ".join(str(imported_code(dot)) for dot in dots)
        schedule.annotate(batch[-1], IMPORTED, code if tiles is None else tiles.code)
    mixed, scores = block("mixed"), block("scores")
    copied: dict[str, TileCopies] = {}
    if tiles is not None:
        panels_first(schedule, scores)
        copied = {"mixed": copy_values(schedule, mixed), "scores": copy_keys(schedule, scores)}
    tile, inner = schedule.split(rows, [None, tile_rows])
    schedule.split(inner, [None, together])
    vectorize(schedule, normal)
    for name in _OF_A_TILE:
        of = copied.get(name)
        # The stores follow a product, and the loads precede it.
        stages = [block(name)] if of is None else [of.sums, block(name), of.rows, of.columns]
        for stage in stages:
            schedule.compute_at(stage, tile, preserve_unit_loops=True)
    schedule.reverse_compute_at(last, tile, preserve_unit_loops=True)
    vectorize(schedule, last)
    if tiles is None:
        _products_of_keys(schedule, scores, together)
        products_of_values(schedule, mixed, together, lanes)
    else:
        multiply_keys(schedule, scores, copied["scores"], tiles.of_keys)
        multiply_values(schedule, mixed, copied["mixed"], tiles.of_values)
    reduce_lanes(schedule)
    for name in ("queries", "weights"):
        vectorize(schedule, block(name))
    return batch[-1]


def _columns(schedule: Schedule) -> int:
    """Return the number of scores in a row, padding included."""
    *_, panels, lanes = schedule.get(schedule.get_sblock("scores")).writes[0].source.shape
    return int(panels) * int(lanes)


def _tile_extents(rows: int, unit: int, row_bytes: int) -> list[int]:
    """Return the candidate rows of a tile, ascending; ``rows`` is a multiple of ``unit``."""
    most = min(_MOST_TILE_ROWS, _MOST_TILE_BYTES // row_bytes)
    extents = [n for n in range(unit, rows + 1, unit) if rows % n == 0]
    return [n for n in extents if n <= most] or extents[:1]


def _products_of_keys(schedule: Schedule, scores: SBlockRV, together: ExprRV | int) -> None:
    *_, rows, panels, lane, depth = schedule.get_loops(scores)
    row, register_row = schedule.split(rows, [None, together])
    outer, panel = perfect_tile(schedule, panels, 2, _MOST_PANELS)
    for loop in (register_row, panel):
        schedule.unroll(loop)
    if is_of_halves(schedule):
        step, pair = schedule.split(depth, [None, PAIR])
        schedule.reorder(outer, row, step, register_row, panel, lane, pair)
        tensorize(schedule, (step, panel, lane), LANES)
    else:
        schedule.reorder(outer, row, depth, register_row, panel, lane)
        schedule.vectorize(lane)
