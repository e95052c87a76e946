# SPDX-License-Identifier: Apache-2.0
"""A MetaSchedule schedule rule for reductions of contiguous numbers.

TVM's rules reduce them one after the other, because a vector of results would gather its numbers.
Here a vector of partial results is reduced at the end. It need not divide the numbers.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IntImm, IterVar

from .register_tiles.partitions import PARTITIONED
from .register_tiles.tiling import (
    FINISHED,
    FREE,
    BlockRule,
    finish_outer,
    is_marked,
    is_plain,
    sample,
)
from .trees import mentions

LANES = (16, 32, 64)
"""Numbers of partial results to choose from; at least twice as many numbers are reduced."""

_TALLS = (1, 2, 4)
"""Numbers of rows that are reduced together, so that they share what they read."""

_SHARED = 64
"""Number of results that several threads share. TVM's rules split a reduction of fewer."""


def LaneSums(is_parallel: bool) -> ScheduleRule:
    """Make the rule for blocks that reduce contiguous numbers.

    A block that reads one tensor gets this schedule instead of TVM's, unless several threads have
    too few results to share. A product of two tensors that are both read along contiguous numbers
    gets it in addition to TVM's. ``is_parallel``: whether several threads share a kernel.
    """

    def apply(sch: Schedule, block: SBlockRV) -> list[Schedule]:
        node = sch.get(block)
        place = contiguous_axis(node)
        if place is None or not is_plain(sch, block):
            return [sch]
        reads = [region.source for region in node.reads]
        if any(is_marked(sch, source, FREE) for source in reads):
            return [sch]
        space = sch.copy()
        try:
            _reduce_lanes(space, block, place, is_parallel)
        except ScheduleError:
            return [sch]
        results = prod(int(extent) for extent in node.writes[0].source.shape)
        is_shared = not is_parallel or results >= _SHARED
        return [space] if len(reads) == 1 and is_shared else [sch, space]

    return BlockRule(apply)


def contiguous_axis(block: Any) -> int | None:
    """Return the position of the reduced axis along contiguous numbers; None if there is none.

    All tensors that the axis indexes are read along it. It has at least twice as many numbers as a
    vector. The block writes one tensor.
    """
    if block.init is None or len(block.writes) != 1:
        return None
    found = {
        place
        for place, axis in enumerate(block.iter_vars)
        if axis.iter_type == IterVar.CommReduce
        and isinstance(axis.dom.extent, IntImm)
        and int(axis.dom.extent) >= 2 * LANES[0]
        and _is_last(axis.var, block.reads)
    }
    return found.pop() if len(found) == 1 else None


def _is_last(variable: Any, regions: Sequence[Any]) -> bool:
    """Return whether a variable is the last index of each region that it indexes, and of one."""
    own = [region.region for region in regions if _mentions(region.region, variable)]
    return bool(own) and all(
        region[-1].min.same_as(variable) and not _mentions(region[:-1], variable) for region in own
    )


def _mentions(ranges: Sequence[Any], variable: Any) -> bool:
    return any(mentions(each.min, variable) for each in ranges)


def split_lanes(
    schedule: Schedule, block: SBlockRV, place: int, lanes: Any
) -> tuple[SBlockRV, list[LoopRV], list[LoopRV], LoopRV]:
    """Make a block of partial results, one for each lane, which ``block`` reduces.

    ``place``: the position of the reduced axis. Returns the new block, its loops over the results,
    over the numbers that are reduced, and over the lanes.
    """
    node = schedule.get(block)
    kinds = [axis.iter_type == IterVar.DataPar for axis in node.iter_vars]
    steps, lane = schedule.split(schedule.get_loops(block)[place], [None, lanes])
    schedule.annotate(steps, PARTITIONED, True)
    partial = schedule.rfactor(lane, len(node.writes[0].source.shape))
    loops = list(schedule.get_loops(partial))
    lane = loops.pop(place + 1)
    outer = [loop for loop, is_one in zip(loops, kinds, strict=True) if is_one]
    sums = [loop for loop, is_one in zip(loops, kinds, strict=True) if not is_one]
    return partial, outer, sums, lane


def _reduce_lanes(schedule: Schedule, block: SBlockRV, place: int, is_parallel: bool) -> None:
    axes = schedule.get(block).iter_vars
    choices = [lanes for lanes in LANES if 2 * lanes <= int(axes[place].dom.extent)]
    lanes = sample(schedule, choices)
    partial, outer, sums, lane = split_lanes(schedule, block, place, lanes)
    rows = [int(axis.dom.extent) for axis in axes if axis.iter_type == IterVar.DataPar]
    tile = []
    if rows and rows[-1] > 1:
        talls = [tall for tall in _TALLS if rows[-1] % tall == 0]
        outer[-1], row = schedule.split(outer[-1], [None, sample(schedule, talls)])
        tile = [row]
    schedule.reorder(*outer, *sums, *tile, lane)
    schedule.vectorize(lane)
    for loop in tile:
        schedule.unroll(loop)
    if outer:
        first = schedule.fuse(*outer)
        schedule.reverse_compute_at(block, first, preserve_unit_loops=True)
        finish_outer(schedule, [first], is_parallel)
    schedule.annotate(lane, FINISHED, 1)
    start = schedule.decompose_reduction(partial, sums[0])
    schedule.vectorize(schedule.get_loops(start)[-1])
