# SPDX-License-Identifier: Apache-2.0
"""A schedule without a design space: vectorized, parallel, with elementwise blocks inlined.

It is measured along with the sampled schedules, and used if no schedule rule gives a valid one.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IntImm, IterVar

VECTORS = (64, 32, 16, 8, 4)
"""The extents of a vector loop, the preferred one first; 64 is TVM's own maximum."""


def plain_schedule(mod: IRModule) -> Schedule | None:
    """Schedule a workload plainly; return None if nothing can be vectorized.

    In each block, the outer spatial loops are fused and parallel, and the innermost spatial loop is
    vectorized. Reduction loops run between them and accumulate a vector of results.
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
        before = schedule
        schedule = _tried(schedule, name, _spread)
        vectorized += schedule is not before
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
    axes: Sequence[Any] = schedule.get(block).iter_vars
    loops = schedule.get_loops(block)
    if len(axes) != len(loops) or any(
        axis.iter_type not in (IterVar.DataPar, IterVar.CommReduce) for axis in axes
    ):
        raise ValueError("no loop to vectorize")
    spatial = [loop for loop, axis in zip(loops, axes, strict=True) if _is_spatial(axis)]
    reduced = [loop for loop, axis in zip(loops, axes, strict=True) if not _is_spatial(axis)]
    if not spatial:
        raise ValueError("no loop to vectorize")
    *outer, last = spatial
    within, vector = _split(schedule, last)
    outer += within
    schedule.reorder(*outer, *reduced, vector)
    schedule.vectorize(vector)
    if outer:
        schedule.parallel(schedule.fuse(*outer))
    # Decompose last: the update block of a decomposed reduction can no longer be spread.
    if reduced:
        first = schedule.decompose_reduction(block, reduced[0])
        schedule.vectorize(schedule.get_loops(first)[-1])


def _is_spatial(axis: Any) -> bool:
    return bool(axis.iter_type == IterVar.DataPar)


def _split(schedule: Schedule, loop: LoopRV) -> tuple[list[LoopRV], LoopRV]:
    """Split off a vector loop; return the loop around it, if any, and the vector loop."""
    extent = schedule.get(loop).extent
    if not isinstance(extent, IntImm):
        raise ValueError("no loop to vectorize")
    for lanes in VECTORS:
        if int(extent) % lanes == 0:
            around, vector = schedule.split(loop, [None, lanes])
            return [around], vector
    if 1 < int(extent) < VECTORS[0]:
        return [], loop
    raise ValueError("no loop to vectorize")
