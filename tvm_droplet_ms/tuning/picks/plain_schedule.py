# SPDX-License-Identifier: Apache-2.0
"""A schedule that needs no design space: vectorized, parallel, what is elementwise inlined.

It is measured beside the sampled ones, and stands in where no schedule rule gives a valid one.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IntImm, IterVar

VECTORS = (64, 32, 16, 8, 4)
"""The extents of a vector loop, the preferred one first: 64 is TVM's own most."""


def plain_schedule(mod: IRModule) -> Schedule | None:
    """Schedule a workload plainly; None where nothing can be vectorized.

    The outer spatial loops of each block are fused and parallel, the innermost spatial one is
    vectorized, and reductions run between them, so that a vector of results is kept while they run.
    """
    schedule = Schedule(mod, debug_mask="none", error_render_level="none")
    try:
        root = schedule.get_sblock("root")
        names = [schedule.get(block).name_hint for block in schedule.get_child_blocks(root)]
    # A kernel that was written without blocks has no root by that name.
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
    """A copy with one block changed; the schedule itself where it cannot be changed so."""
    copy = schedule.copy()
    # TVM raises errors of many types from a primitive that does not apply, or a block that is gone.
    try:
        change(copy, copy.get_sblock(name))
    except Exception:
        return schedule
    return copy


class _NothingToVectorize(Exception):
    """A block has no loop for it."""


def _spread(schedule: Schedule, block: SBlockRV) -> None:
    """Vectorize a block, and let its outer loops be parallel."""
    axes: Sequence[Any] = schedule.get(block).iter_vars
    loops = schedule.get_loops(block)
    if len(axes) != len(loops) or any(
        axis.iter_type not in (IterVar.DataPar, IterVar.CommReduce) for axis in axes
    ):
        raise _NothingToVectorize
    spatial = [loop for loop, axis in zip(loops, axes, strict=True) if _is_spatial(axis)]
    reduced = [loop for loop, axis in zip(loops, axes, strict=True) if not _is_spatial(axis)]
    if not spatial:
        raise _NothingToVectorize
    *outer, last = spatial
    within, vector = _split(schedule, last)
    outer += within
    schedule.reorder(*outer, *reduced, vector)
    schedule.vectorize(vector)
    if outer:
        schedule.parallel(schedule.fuse(*outer))
    # At the end: a block that updates what another one writes can no longer be spread.
    if reduced:
        first = schedule.decompose_reduction(block, reduced[0])
        schedule.vectorize(schedule.get_loops(first)[-1])


def _is_spatial(axis: Any) -> bool:
    return bool(axis.iter_type == IterVar.DataPar)


def _split(schedule: Schedule, loop: LoopRV) -> tuple[list[LoopRV], LoopRV]:
    """The loop around a vector, if any, and the vector."""
    extent = schedule.get(loop).extent
    if not isinstance(extent, IntImm):
        raise _NothingToVectorize
    for lanes in VECTORS:
        if int(extent) % lanes == 0:
            around, vector = schedule.split(loop, [None, lanes])
            return [around], vector
    if 1 < int(extent) < VECTORS[0]:
        return [], loop
    raise _NothingToVectorize
