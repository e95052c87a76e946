# SPDX-License-Identifier: Apache-2.0
"""A MetaSchedule schedule rule for matrix tiles.

Groups of tiles of sums are accumulated in registers. The consumers are computed group by group from
a buffer in L1. Rows are read in place: in a convolution they are the pixels of a line, and each tap
shifts the address.
"""

from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule, ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IndexMap, IterVar

from ..dot_products.dot_rule import FEWEST_USES, IMPORTED, pack_weights
from ..dot_products.dot_units import DotUnit
from ..dot_products.find_dot import factors_of
from ..register_tiles.tiling import (
    FINISHED,
    FREE,
    inlined_consumers,
    is_marked,
    is_plain,
    perfect_tile,
)
from .find_matrix import FoundMatrix, find_matrix
from .joined_taps import join_taps
from .tile_configuration import function_code
from .tile_kind import TileKind
from .tile_loops import copy_to_tiles, tensorize_tiles
from .tile_shapes import MacroTile, offered_tiles

_MOST_UNROLLED = 4
_VECTOR = 16


@derived_object
class MatrixTiles(PyScheduleRule):
    """Schedules blocks that sum matrix products, and leaves all others to later rules.

    ``units``: the CPU's tile units. ``is_parallel``: whether several threads share a kernel.
    """

    def __init__(self, units: Sequence[DotUnit], is_parallel: bool) -> None:
        """Create the rule for a CPU."""
        super().__init__()
        self._units = units
        self._is_parallel = is_parallel

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def apply(self, sch: Schedule, block: SBlockRV) -> list[Schedule]:
        """Return the design spaces: one for each combination of tiles."""
        if not is_plain(sch, block):
            return [sch]
        found = self._find(sch, block)
        if found is None and self._join_taps(sch, block):
            found = self._find(sch, block)
        tiles = [] if found is None else _tiles(sch.get(block), found)
        if found is None or not tiles:
            return [sch]
        if found.dot.packed_axes is not None:
            is_constant = is_marked(sch, found.dot.weights, FREE)
            if not is_constant and found.dot.uses < FEWEST_USES:
                return [sch]
            pack_weights(sch, block, found.dot, is_constant)
        last = inlined_consumers(sch, block)
        spaces = []
        for tile in tiles:
            space = sch.copy()
            _tile(space, block, found, last, tile, self._is_parallel)
            spaces.append(space)
        return spaces

    def _find(self, schedule: Schedule, block: SBlockRV) -> FoundMatrix | None:
        finds = (find_matrix(schedule.get(block), unit) for unit in self._units)
        return next((find for find in finds if find is not None), None)

    def _join_taps(self, schedule: Schedule, block: SBlockRV) -> bool:
        """Fuse taps and channels into one axis; return whether that was possible."""
        for unit in self._units:
            loads = factors_of(schedule.get(block), unit)
            if loads is not None:
                is_constant = is_marked(schedule, loads[1].source, FREE)
                return join_taps(schedule, block, unit, is_constant)
        return False

    def clone(self) -> ScheduleRule:
        """Return a rule for the same CPU."""
        return MatrixTiles(self._units, self._is_parallel)


def _tiles(node: Any, found: FoundMatrix) -> list[MacroTile]:
    extents = [int(axis.dom.extent) for axis in node.iter_vars]
    sums = [n for n, axis in enumerate(node.iter_vars) if axis.iter_type != IterVar.DataPar]
    steps = 1
    for number in sums:
        steps *= extents[number]
    return offered_tiles(
        extents[found.row],
        1 if found.line is None else extents[found.line],
        extents[found.dot.lane] // found.dot.dot.lanes,
        found.dot.dot.lanes,
        found.depth,
        steps // found.depth,
    )


def _tile(
    schedule: Schedule,
    block: SBlockRV,
    found: FoundMatrix,
    last: SBlockRV | None,
    tile: MacroTile,
    is_parallel: bool,
) -> None:
    axes = list(schedule.get(block).iter_vars)
    index = str(axes[0].var.ty)
    types = found.dot.dot.shared, found.dot.dot.own
    kind = TileKind(tile, *types, found.stride, found.pitch, found.middle, index)
    copies = copy_to_tiles(
        schedule, block, found.dot.shared, found.reads, found.row, found.dot.step, tile.lanes
    )
    if found.middle:
        _move_middle(schedule, block, index)
    loops = list(schedule.get_loops(block))
    loops[found.row], row = schedule.split(loops[found.row], [None, tile.rows])
    loops[found.dot.lane], lane = schedule.split(loops[found.dot.lane], [None, tile.lanes])
    loops[found.dot.step], step = schedule.split(loops[found.dot.step], [None, tile.depth])
    tiles: list[LoopRV] = []
    for axis, count in (
        (found.line, tile.lines),
        (found.row, tile.groups),
        (found.dot.lane, tile.panels),
    ):
        if axis is not None and count > 1:
            loops[axis], inner = schedule.split(loops[axis], [None, count])
            tiles.append(inner)
    outer: list[LoopRV] = []
    middle: list[LoopRV] = []
    for number, axis in enumerate(axes):
        if axis.iter_type == IterVar.DataPar:
            around, within = perfect_tile(schedule, loops[number], 2)
            outer.append(around)
            middle.append(within)
    sums = [
        loops[number]
        for number, axis in enumerate(axes)
        if axis.iter_type != IterVar.DataPar and number != found.dot.step
    ]
    steps, unrolled = perfect_tile(schedule, loops[found.dot.step], 2, _MOST_UNROLLED)
    schedule.reorder(*outer, *middle, *sums, steps, unrolled, *tiles, row, lane, step)
    first, group = outer[0], middle[-1]
    if is_parallel:
        first = schedule.fuse(*outer)
        schedule.parallel(first)
    schedule.annotate(first, FINISHED, 1)
    schedule.annotate(first, IMPORTED, function_code(kind.element, tile))
    tensorize_tiles(
        schedule,
        block,
        copies,
        kind,
        sums=[*sums, steps][0],
        steps=unrolled,
        tiles=tiles,
        row=row,
        group=group,
        last=last,
    )
    if last is not None:
        _vectorize(schedule, last, tile)


def _move_middle(schedule: Schedule, block: SBlockRV, index: str) -> None:
    """Move the axis of one element before the rows, in the tiles of sums."""
    rank = len(schedule.get(block).writes[0].source.shape)

    def order(*at: Any) -> list[Any]:
        return [*at[:-3], at[-2], at[-3], at[-1]]

    schedule.transform_layout(
        block, ("write", 0), IndexMap.from_func(order, ndim=rank, index_dtype=index)
    )


def _vectorize(schedule: Schedule, block: SBlockRV, tile: MacroTile) -> None:
    """Vectorize the consumer of a group of tiles."""
    lanes = tile.panels * tile.lanes
    length = _VECTOR if lanes % _VECTOR == 0 else tile.lanes
    vectors, inner = schedule.split(schedule.get_loops(block)[-1], [None, length])
    schedule.unroll(vectors)
    schedule.vectorize(inner)
    schedule.annotate(vectors, FINISHED, 1)
