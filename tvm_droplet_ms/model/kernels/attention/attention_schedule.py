# SPDX-License-Identifier: Apache-2.0
"""The design spaces of attention as one kernel on a CPU."""

import math

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ExprRV, LoopRV, SBlockRV

from .attention_compute import LANES

_MOST_ROWS, _MOST_PANELS, _MOST_VECTORS = 8, 4, 4
"""The most rows, panels of keys, and vectors of values that are computed together."""

_MOST_COLUMNS = 512
"""The most values that are kept in the first cache while they serve all rows of a tile."""

_OF_A_TILE = (
    *("mixed", "total", "total_of_lane", "weights", "largest", "largest_of_lane"),
    *("scores", "queries"),
)
"""The stages that are computed for a tile of rows, the last one first."""


def schedule_attention(schedule: Schedule, normal: SBlockRV) -> list[Schedule]:
    """Two design spaces: keys and values packed for each head, or all beforehand.

    A tile of rows goes through all stages. Products are accumulated in registers: rows times
    panels of scores, and rows times vectors of values.
    """
    block = schedule.get_sblock
    for name in ("queries", "keys", "values"):
        _inline_producers(schedule, block(name))
    for name in ("logits", "shifted"):
        schedule.compute_inline(block(name))
    for producer in schedule.get_producers(block("weights")):
        if schedule.get(producer).name_hint not in _OF_A_TILE:
            schedule.compute_inline(producer)  # The exponential.
    last = block("attention")
    while consumers := schedule.get_consumers(last):
        schedule.compute_inline(last)
        last = consumers[0]
    head = _tile(schedule, normal, last)
    beforehand = schedule.copy()
    for name in ("keys", "values"):
        schedule.compute_at(block(name), head, preserve_unit_loops=True)
    for space in (schedule, beforehand):
        for name in ("keys", "values"):
            _vectorize(space, space.get_sblock(name))
    return [schedule, beforehand]


def _tile(schedule: Schedule, normal: SBlockRV, last: SBlockRV) -> LoopRV:
    """Compute all stages for a tile of rows; return the loop over the heads."""
    block = schedule.get_sblock
    *batch, rows, width = schedule.get_loops(normal)
    tiles, parts, together = schedule.sample_perfect_tile(
        rows, n=3, max_innermost_factor=_MOST_ROWS
    )
    tile, *_ = schedule.split(rows, [tiles, parts, together])
    lanes = math.gcd(int(schedule.get(width).extent), LANES)
    _vectorize(schedule, normal)
    for name in _OF_A_TILE:
        schedule.compute_at(block(name), tile, preserve_unit_loops=True)
    schedule.reverse_compute_at(last, tile, preserve_unit_loops=True)
    _vectorize(schedule, last)
    _products_of_keys(schedule, block("scores"), together)
    _products_of_values(schedule, block("mixed"), together, lanes)
    for name in ("largest_of_lane", "total_of_lane"):
        *_, lane, panel = schedule.get_loops(block(name))
        schedule.reorder(panel, lane)
        schedule.vectorize(lane)
    for name in ("queries", "weights"):
        _vectorize(schedule, block(name))
    for name in ("largest", "total"):
        # Vectors of rows would gather their lanes. MetaSchedule leaves loops with a mark alone.
        schedule.annotate(schedule.get_loops(block(name))[-1], "is_scalar", 1)
    return batch[-1]


def _products_of_keys(schedule: Schedule, scores: SBlockRV, together: ExprRV) -> None:
    *_, rows, panels, lane, depth = schedule.get_loops(scores)
    row, register_row = schedule.split(rows, [None, together])
    outer, panel = _perfect_tile(schedule, panels, _MOST_PANELS)
    schedule.reorder(outer, row, depth, register_row, panel, lane)
    for loop in (register_row, panel):
        schedule.unroll(loop)
    schedule.vectorize(lane)


def _products_of_values(schedule: Schedule, mixed: SBlockRV, together: ExprRV, lanes: int) -> None:
    *_, rows, width, columns = schedule.get_loops(mixed)
    row, register_row = schedule.split(rows, [None, together])
    vectors, lane = schedule.split(width, [None, lanes])
    outer, vector = _perfect_tile(schedule, vectors, _MOST_VECTORS)
    part, column = _perfect_tile(schedule, columns, _MOST_COLUMNS)
    schedule.reorder(part, outer, row, column, register_row, vector, lane)
    for loop in (register_row, vector):
        schedule.unroll(loop)
    schedule.vectorize(lane)


def _perfect_tile(schedule: Schedule, loop: LoopRV, most: int) -> list[LoopRV]:
    factors = schedule.sample_perfect_tile(loop, n=2, max_innermost_factor=most)
    return list(schedule.split(loop, factors))


def _vectorize(schedule: Schedule, block: SBlockRV, lanes: int = LANES) -> None:
    """Vectorise the innermost loop of a block, in vectors of so many floats where they fit."""
    loop = schedule.get_loops(block)[-1]
    extent = int(schedule.get(loop).extent)
    schedule.vectorize(schedule.split(loop, [None, math.gcd(extent, lanes)])[1])


def _inline_producers(schedule: Schedule, block: SBlockRV) -> None:
    for producer in schedule.get_producers(block):
        _inline_producers(schedule, producer)
        schedule.compute_inline(producer)
