# SPDX-License-Identifier: Apache-2.0
"""A schedule without a design space: vectorized, parallel, with elementwise blocks inlined.

It is measured along with the sampled schedules, and used if no schedule rule gives a valid one.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IntImm, IterVar

from ...design_space.lane_sums import split_lanes
from ...design_space.register_tiles.partitions import PARTITIONED

VECTORS = (64, 32, 16, 8, 4)
"""The extents of a vector loop, the preferred one first; 64 is TVM's own maximum."""

LANES = 16
"""The lanes of a vector that does not divide its loop; the rest of the loop runs number by number.
A loop of twice as many numbers is worth it."""

LONG = 1024
"""Number of summed numbers from which ``VECTORS[0]`` lanes pay, which are added up at the end."""


def plain_schedule(mod: IRModule) -> Schedule | None:
    """Schedule a workload plainly; return None if nothing can be vectorized.

    In each block, the outer spatial loops are fused and parallel, and the innermost spatial loop is
    vectorized. Reduction loops run between them and accumulate a vector of results. A reduction of
    contiguous numbers accumulates a vector too, which is reduced at the end. If no vector divides a
    loop, its last vector is a loop of its own.
    """
    schedule = Schedule(mod, debug_mask="none", error_render_level="none")
    try:
        root = schedule.get_sblock("root")
        names = [schedule.get(block).name_hint for block in schedule.get_child_blocks(root)]
    # A kernel without blocks has no root block of that name.
    except Exception:
        return None
    for name in names[:-1]:
        schedule = _tried(schedule, name, Schedule.compute_inline)
    vectorized = 0
    for name in names:
        # TVM cannot split a reduction with an operation that it does not know, such as ``or``.
        for change in (_spread_sum, _spread):
            before = schedule
            schedule = _tried(schedule, name, change)
            if schedule is not before:
                vectorized += 1
                break
    return schedule if vectorized else None


def _tried(schedule: Schedule, name: str, change: Callable[[Schedule, SBlockRV], Any]) -> Schedule:
    """Return a copy with one block changed; the schedule itself if the change fails."""
    copy = schedule.copy()
    # TVM raises many error types if a primitive does not apply or a block is gone.
    try:
        change(copy, copy.get_sblock(name))
    except Exception:
        return schedule
    return copy


def _spread(schedule: Schedule, block: SBlockRV) -> None:
    """Vectorize a block and parallelize its outer loops."""
    axes, loops = _axes(schedule, block)
    spatial = [loop for loop, axis in zip(loops, axes, strict=True) if _is_spatial(axis)]
    reduced = [loop for loop, axis in zip(loops, axes, strict=True) if not _is_spatial(axis)]
    if not spatial:
        raise ValueError("no loop to vectorize")
    # The extents of 1 of a reduction that keeps its axes are no vectors.
    *outer, last = sorted(spatial, key=lambda loop: int(schedule.get(loop).extent) > 1)
    around, vector = _split(schedule, last)
    # A partitioned loop cannot be fused.
    if around is not None and not _is_partitioned(schedule, around):
        outer.append(around)
        around = None
    between = [] if around is None else [around]
    schedule.reorder(*outer, *between, *reduced, vector)
    schedule.vectorize(vector)
    if outer:
        schedule.parallel(schedule.fuse(*outer))
    # Decompose last: the update block of a decomposed reduction can no longer be spread.
    if reduced:
        first = schedule.decompose_reduction(block, reduced[0])
        schedule.vectorize(schedule.get_loops(first)[-1])


def _axes(schedule: Schedule, block: SBlockRV) -> tuple[Sequence[Any], Sequence[LoopRV]]:
    """Return the axes of a block, and the loop of each."""
    axes: Sequence[Any] = schedule.get(block).iter_vars
    loops: Sequence[LoopRV] = schedule.get_loops(block)
    if len(axes) != len(loops) or any(
        axis.iter_type not in (IterVar.DataPar, IterVar.CommReduce) for axis in axes
    ):
        raise ValueError("no loop to vectorize")
    return axes, loops


def _contiguous_sum(block: Any) -> int | None:
    """Return the position of the reduced axis along the contiguous numbers of the largest read.

    Returns None if there is no such axis, or it is short, or the block reduces tuples.
    """
    if len(block.writes) != 1 or not block.reads:
        return None
    read = max(block.reads, key=lambda region: prod(map(int, region.source.shape)))
    for place, axis in enumerate(block.iter_vars):
        if axis.var.same_as(read.region[-1].min) and not _is_spatial(axis):
            return place if int(axis.dom.extent) >= 2 * LANES else None
    return None


def _spread_sum(schedule: Schedule, block: SBlockRV) -> None:
    """Reduce the axis of contiguous numbers in the lanes of a vector, and then the lanes."""
    axes, _ = _axes(schedule, block)
    place = _contiguous_sum(schedule.get(block))
    if place is None:
        raise ValueError("no contiguous numbers to reduce")
    length = prod(int(axis.dom.extent) for axis in axes if not _is_spatial(axis))
    is_long = length >= LONG and int(axes[place].dom.extent) >= 2 * VECTORS[0]
    lanes = VECTORS[0] if is_long else LANES
    first, spatial, sums, lane = split_lanes(schedule, block, place, lanes)
    schedule.reorder(*spatial, *sums, lane)
    schedule.vectorize(lane)
    if spatial:
        outer = schedule.fuse(*spatial)
        schedule.reverse_compute_at(block, outer)
        schedule.parallel(outer)
    init = schedule.decompose_reduction(first, sums[0])
    schedule.vectorize(schedule.get_loops(init)[-1])


def _is_spatial(axis: Any) -> bool:
    return bool(axis.iter_type == IterVar.DataPar)


def _is_partitioned(schedule: Schedule, loop: LoopRV) -> bool:
    return PARTITIONED in schedule.get(loop).annotations


def _split(schedule: Schedule, loop: LoopRV) -> tuple[LoopRV | None, LoopRV]:
    """Split off a vector loop; return the loop around it, if any, and the vector loop."""
    extent = schedule.get(loop).extent
    if not isinstance(extent, IntImm):
        raise ValueError("no loop to vectorize")
    whole = next((lanes for lanes in VECTORS if int(extent) % lanes == 0), None)
    if (whole or 1) < LANES < 2 * LANES <= int(extent):
        around, vector = schedule.split(loop, [None, LANES])
        schedule.annotate(around, PARTITIONED, True)
        return around, vector
    if whole is not None:
        around, vector = schedule.split(loop, [None, whole])
        return around, vector
    if 1 < int(extent) < VECTORS[0]:
        return None, loop
    raise ValueError("no loop to vectorize")
