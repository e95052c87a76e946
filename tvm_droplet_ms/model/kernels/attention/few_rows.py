# SPDX-License-Identifier: Apache-2.0
"""Attention of a few queries with cached keys and values, as in each step of a decoder.

Reading keys and values from memory is the bottleneck. So they are read once and in place, and
nothing is packed. The products of a key and a query are summed lane by lane, and the lanes by
repeated halving.
"""

import math
from typing import Any

from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ....design_space.dot_products.dot_intrinsics import lane_sum, register_dots
from ....design_space.register_tiles.tiling import FINISHED, sample
from ..kernel_pass import compute_stage
from .attention_packing import LANES, Element, Packing, column_of
from .stages import inline_others, products_of_values, reduce_lanes, vectorize

FEW_ROWS_RULE = "tvm_droplet_ms.attention_of_few_rows"
"""The schedule rule that the kernel requests."""

LEAST_LANES = 4
"""Minimum lanes of the vectors in which keys are read."""

_TOGETHER = (1, 2, 4)
"""Candidate numbers of keys that are multiplied together."""

MOST_FEW_ROWS = 16
"""Maximum rows, and vectors of sums, that fit in the registers besides the factors."""

_OF_A_HEAD = (
    *("mixed", "total", "total_of_lane", "weights", "largest", "largest_of_lane"),
    *("scores", "products", "queries"),
)
"""The stages that are computed for each head, the last one first."""


class AsTheyLie(Packing):
    """Reads keys and values in place; the lanes of a vector hold parts of one key."""

    def scores(self, rows: int, queries: Element, keys: Element) -> te.Tensor:
        """Compute the products, of shape (*batch, rows, panels, lanes); see ``Packing``."""
        one = self._extents
        vector = lanes_of(one.depth)
        part = te.reduce_axis((0, one.depth // vector), "part")
        lane = te.reduce_axis((0, vector), "lane")

        def product(*at: Any) -> Any:
            *batch, row, panel, column, place = at
            d = part * vector + place
            key = keys(*batch, d, column_of(panel, column, one.columns))
            return te.sum(queries(*batch, row, d) * key, axis=[part])

        partial = compute_stage((*one.batch, rows, one.panels, LANES, vector), product, "products")
        return compute_stage(
            (*one.batch, rows, one.panels, LANES),
            lambda *at: te.sum(partial(*at, lane), axis=[lane]),
            "scores",
        )

    def values(self, values: Element) -> Element:
        """Return the values unchanged."""
        return values


def lanes_of(depth: int) -> int:
    """Return the lanes of the vectors of a key or a value."""
    return math.gcd(depth, LANES)


def schedule_few_rows(schedule: Schedule, normal: SBlockRV) -> list[Schedule]:
    """Return one space over the numbers of keys and value vectors that are multiplied together."""
    block = schedule.get_sblock
    last = inline_others(schedule, (*_OF_A_HEAD, "normal"))
    *batch, rows, width = schedule.get_loops(normal)
    count, lanes = int(schedule.get(rows).extent), lanes_of(int(schedule.get(width).extent))
    # MetaSchedule cannot parallelize a loop around a decomposed reduction.
    head = schedule.fuse(*batch)
    schedule.parallel(head)
    schedule.annotate(head, FINISHED, 1)
    vectorize(schedule, normal)
    for name in _OF_A_HEAD:
        schedule.compute_at(block(name), head, preserve_unit_loops=True)
    schedule.reverse_compute_at(last, head, preserve_unit_loops=True)
    vectorize(schedule, last)
    _products_of_keys(schedule, count)
    products_of_values(schedule, block("mixed"), count, lanes, MOST_FEW_ROWS // count)
    reduce_lanes(schedule)
    for name in ("largest_of_lane", "total_of_lane", "weights"):
        # TVM unrolls an innermost loop over hundreds of panels, which takes seconds to compile.
        row, panel, _ = schedule.get_loops(block(name))[-3:]
        schedule.reorder(panel, row)
    for name in ("queries", "weights"):
        vectorize(schedule, block(name))
    return [schedule]


def _products_of_keys(schedule: Schedule, count: int) -> None:
    """Multiply some keys at a time: accumulate in registers, then sum the lanes.

    ``count``: the number of rows.
    """
    scores, products = (schedule.get_sblock(name) for name in ("scores", "products"))
    together = sample(schedule, [n for n in _TOGETHER if n * count <= MOST_FEW_ROWS] or [1])
    *_, rows, panel, column, lane = schedule.get_loops(scores)
    columns, one = schedule.split(column, [None, together])
    schedule.reorder(panel, columns, one, rows, lane)
    schedule.compute_at(products, columns, preserve_unit_loops=True)
    *_, row, _, key, place, part = schedule.get_loops(products)
    schedule.reorder(part, key, row, place)
    for loop in (one, rows, part, key, row):
        schedule.unroll(loop)
    schedule.vectorize(place)
    *_, key, row, _ = schedule.get_loops(schedule.decompose_reduction(products, part))
    for loop in (key, row):
        schedule.unroll(loop)
    first, lane_of_panel = _by_rows(schedule, schedule.decompose_reduction(scores, panel))
    schedule.vectorize(lane_of_panel)
    for loop in (rows, place, row, first):
        schedule.annotate(loop, FINISHED, 1)
    register_dots()
    schedule.tensorize(lane, lane_sum(int(schedule.get(lane).extent)))


def _by_rows(schedule: Schedule, zeros: SBlockRV) -> tuple[LoopRV, LoopRV]:
    """Return the loops of the scores' initialization: over rows, and over the lanes of a panel."""
    *_, panel, columns, one, rows = schedule.get_loops(zeros)
    schedule.reorder(panel, rows, columns, one)
    return rows, schedule.fuse(columns, one)
