# SPDX-License-Identifier: Apache-2.0
"""Design spaces of a Winograd convolution's transforms, for MetaSchedule on a CPU.

Between them, MetaSchedule's own rules tile the products. ``schedule/cpu/winograd.cc`` of TVM has
rules for transforms as TOPI writes them. They leave nothing to vectorise, and unroll tiles of
channels: a candidate takes seconds to build.
"""

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ..pool_rules import register_rule, vector_extents
from .winograd_compute import INPUT_RULE, OUTPUT_RULE


def register_winograd_rules() -> None:
    """Register the rules. It may be called again, and leaves registered rules as they are."""
    for name, rule in ((INPUT_RULE, _schedule_input), (OUTPUT_RULE, _schedule_output)):
        register_rule(name, rule)


def _schedule_input(schedule: Schedule, pack: SBlockRV) -> list[Schedule]:
    """The input transform: one tile at a time, a vector of channels at a time.

    Two design spaces: the padded data is made beforehand, or for each tile.
    """
    (columns,) = schedule.get_producers(pack)
    y, x, tiles, channels = schedule.get_loops(pack)
    outer, vector = _split_channels(schedule, channels)
    schedule.reorder(tiles, outer, y, x, vector)
    schedule.compute_at(columns, y, preserve_unit_loops=True)
    _unroll_tile(schedule, columns)
    _unroll_tile(schedule, pack, 3)
    padding = schedule.get_producers(columns)
    if not padding:
        return [schedule]
    beforehand = schedule.copy()
    schedule.compute_at(padding[0], tiles, preserve_unit_loops=True)
    return [beforehand, schedule]


def _schedule_output(schedule: Schedule, inverse: SBlockRV) -> list[Schedule]:
    """The output transform and what follows it: one tile at a time, a vector at a time."""
    (columns,) = schedule.get_producers(inverse)
    (last,) = schedule.get_consumers(inverse)
    while consumers := schedule.get_consumers(last):
        schedule.compute_inline(last)
        last = consumers[0]
    tile = int(schedule.get(schedule.get_loops(inverse)[0]).extent)
    batch, height, width, channels = schedule.get_loops(last)
    rows, y = schedule.split(height, [None, tile])
    row_tiles, x = schedule.split(width, [None, tile])
    outer, vector = _split_channels(schedule, channels)
    schedule.reorder(batch, rows, row_tiles, outer, y, x, vector)
    schedule.vectorize(vector)
    schedule.compute_at(inverse, outer, preserve_unit_loops=True)
    y = schedule.get_loops(inverse)[-4]
    schedule.compute_at(columns, y, preserve_unit_loops=True)
    _unroll_tile(schedule, columns)
    _unroll_tile(schedule, inverse)
    return [schedule]


def _split_channels(schedule: Schedule, channels: LoopRV) -> list[LoopRV]:
    """Split a vector, of a sampled extent, off the loop over the channels."""
    extents = vector_extents(int(schedule.get(channels).extent))
    extent = schedule.sample_categorical(extents, [1.0 / len(extents)] * len(extents))
    return list(schedule.split(channels, [None, extent]))


def _unroll_tile(schedule: Schedule, block: SBlockRV, count: int = 4) -> None:
    """Vectorise the innermost loop of a block, and unroll the other ones of the last `count`."""
    *tile, vector = schedule.get_loops(block)[-count:]
    for loop in tile:
        schedule.unroll(loop)
    schedule.vectorize(vector)
