# SPDX-License-Identifier: Apache-2.0
"""The design spaces of grouped convolutions with packed weights.

MetaSchedule tiles the axes of a reduction alike, and would split the lanes of a vector. A random
point then has most often no register tile.
"""

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IterVar

from ..pool_rules import register_rule

PACKED_RULE = "tvm_droplet_ms.packed_groups"
"""The rule that the reduction asks for."""

_MOST_ROWS, _MOST_COLUMNS, _MOST_VECTORS, _MOST_INPUTS = 4, 16, 8, 8
_MOST_LANES = 144


def register_packed_rule() -> None:
    """Register the schedule rule. It may be called again, and leaves a registered rule as it is."""
    register_rule(PACKED_RULE, _schedule)


def _schedule(schedule: Schedule, grouped: SBlockRV) -> list[Schedule]:
    """Two design spaces: the groups inside of the tiles of pixels, or outside.

    A tile of pixels and vectors of one group is accumulated in registers. What follows the
    convolution is computed for a tile of pixels and all outputs of a group.
    """
    last = _last(schedule, grouped)
    if last is None:
        schedule.unannotate(grouped, "schedule_rule")
        return [schedule]  # TVM's default design space.
    spaces = []
    for groups_first in (False, True):
        space = schedule.copy()
        _tile(space, grouped, last, groups_first)
        spaces.append(space)
    return spaces


def _last(schedule: Schedule, grouped: SBlockRV) -> SBlockRV | None:
    """Inline what follows into the last block; None, and nothing inlined, if it has other axes."""
    chain: list[SBlockRV] = []
    block, shape = grouped, None
    while consumers := schedule.get_consumers(block):
        block = consumers[0]
        axes = schedule.get(block).iter_vars
        extents = [int(axis.dom.extent) for axis in axes]
        if len(consumers) > 1 or any(axis.iter_type != IterVar.DataPar for axis in axes):
            return None
        if shape not in (None, extents):
            return None
        shape = extents
        chain.append(block)
    for producer in chain[:-1]:
        schedule.compute_inline(producer)
    return chain[-1]


def _tile(schedule: Schedule, grouped: SBlockRV, last: SBlockRV, groups_first: bool) -> None:
    groups = int(schedule.get(grouped).iter_vars[3].dom.extent)
    batch, height, width, channels = schedule.get_loops(last)
    group, outputs = schedule.split(channels, [groups, None])
    rows, y = _perfect_tile(schedule, height, _MOST_ROWS)
    columns, x = _perfect_tile(schedule, width, _MOST_COLUMNS)
    outside = [group, rows, columns] if groups_first else [rows, columns, group]
    schedule.reorder(batch, *outside, y, x, outputs)
    schedule.vectorize(_vector(schedule, outputs))
    schedule.compute_at(grouped, outside[-1], preserve_unit_loops=True)
    *_, n, y, x, g, vectors, lanes, ry, rx, inputs = schedule.get_loops(grouped)
    outer, inner = _perfect_tile(schedule, vectors, _MOST_VECTORS)
    parts, unrolled = _perfect_tile(schedule, inputs, _MOST_INPUTS)
    # Pixels between vectors and lanes keep MetaSchedule from fusing these into one vector.
    schedule.reorder(n, g, outer, ry, rx, parts, unrolled, inner, y, x, lanes)
    schedule.vectorize(lanes)
    for loop in (unrolled, inner, y, x):
        schedule.unroll(loop)


def _perfect_tile(schedule: Schedule, loop: LoopRV, most: int) -> list[LoopRV]:
    factors = schedule.sample_perfect_tile(loop, n=2, max_innermost_factor=most)
    return list(schedule.split(loop, factors))


def _vector(schedule: Schedule, outputs: LoopRV) -> LoopRV:
    """The loop over all outputs of a group, or a part of them where they are many.

    LLVM makes vectors of registers of it, and a shorter one at its end.
    """
    extent = int(schedule.get(outputs).extent)
    fitting = [part for part in range(1, min(extent, _MOST_LANES) + 1) if extent % part == 0]
    if fitting[-1] == extent:
        return outputs
    return schedule.split(outputs, [None, fitting[-1]])[1]
