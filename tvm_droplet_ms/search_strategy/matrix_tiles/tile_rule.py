# SPDX-License-Identifier: Apache-2.0
"""The design spaces of matrix tiles: a schedule rule for MetaSchedule.

Groups of tiles of sums are added up in registers, and what follows is computed for each group from
a buffer in L1. Rows are read where they lie: those of a convolution are the pixels of a line, and
a tap moves the address.
"""

from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule, ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IndexMap, IterVar

from ..dot_products.dot_intrinsics import DotUnit
from ..dot_products.dot_rule import FEWEST_USES, IMPORTED, pack_weights
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
from .tile_intrinsics import SCOPE, TileKind
from .tile_shapes import MacroTile, offered_tiles

_MOST_UNROLLED = 4
_VECTOR = 16


@derived_object
class MatrixTiles(PyScheduleRule):
    """Schedules blocks that add up matrix products; others are for the rules behind it.

    ``units``: what the tiles multiply. ``is_parallel``: whether several threads share a kernel.
    """

    def __init__(self, units: Sequence[DotUnit], is_parallel: bool) -> None:
        """Constructor"""
        super().__init__()
        self._units = units
        self._is_parallel = is_parallel

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def apply(self, sch: Schedule, block: SBlockRV) -> list[Schedule]:
        """The design spaces: one for each combination of tiles."""
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
        """Make one axis of taps and channels where the weights may be packed for it."""
        for unit in self._units:
            loads = factors_of(schedule.get(block), unit)
            if loads is not None:
                is_constant = is_marked(schedule, loads[1].source, FREE)
                return join_taps(schedule, block, unit, is_constant)
        return False

    def clone(self) -> ScheduleRule:
        """A rule for the same CPU."""
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
    kind = TileKind(tile, found.dot.dot.shared, found.dot.dot.own, found.stride, found.pitch, index)
    place = _place_of_shared(schedule, block, found)
    rows = _cached_rows(schedule, block, found, place, index)
    columns = schedule.cache_read(block, 1 - place, SCOPE)
    stores = schedule.cache_write(block, 0, SCOPE)
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
    schedule.annotate(first, IMPORTED, function_code(tile, kind.element))
    held_rows, held_columns = tile.held
    rows_at = unrolled if held_rows == tile.along_rows else tiles[-1]
    columns_at = unrolled if held_columns == tile.panels else tiles[-1]
    for copy, at in ((rows, rows_at), (columns, columns_at)):
        schedule.compute_at(copy, at, preserve_unit_loops=True)
    # All blocks are moved before one becomes an intrinsic: it would not count as their producer.
    for after in (stores, last):
        if after is not None:
            schedule.reverse_compute_at(after, group, preserve_unit_loops=True)
    _load_rows(schedule, rows, found, kind)
    _load_columns(schedule, columns, kind)
    _store(schedule, stores, kind)
    if last is not None:
        _vectorize(schedule, last, tile)
    zeros = schedule.decompose_reduction(block, [*sums, steps][0])
    inner_loops = len(tiles) + 2
    schedule.tensorize(schedule.get_loops(zeros)[-inner_loops], kind.register("zeros"))
    for loop in (unrolled, *tiles):
        schedule.unroll(loop)
        schedule.annotate(loop, FINISHED, 1)
    schedule.tensorize(row, kind.register("products"))


def _place_of_shared(schedule: Schedule, block: SBlockRV, found: FoundMatrix) -> int:
    """The number of what all columns share, of the two buffers that a block reads."""
    one, _ = schedule.get(block).reads
    return 0 if one.source.same_as(found.dot.shared) else 1


def _cached_rows(
    schedule: Schedule, block: SBlockRV, found: FoundMatrix, place: int, index: str
) -> SBlockRV:
    """A copy, in tiles, of what all columns share, by the axes that it is read by."""
    rows = schedule.reindex(block, ("read", place))
    row, step = found.reads.index(found.row), found.reads.index(found.dot.step)

    def order(*indices: Any) -> list[Any]:
        others = [each for n, each in enumerate(indices) if n not in (row, step)]
        return [*others, indices[row], indices[step]]

    index_map = IndexMap.from_func(order, ndim=len(found.reads), index_dtype=index)
    schedule.transform_layout(rows, ("write", 0), index_map)
    schedule.set_scope(rows, 0, SCOPE)
    return rows


def _load_rows(schedule: Schedule, block: SBlockRV, found: FoundMatrix, kind: TileKind) -> None:
    loops = schedule.get_loops(block)[-len(found.reads) :]
    row, step = found.reads.index(found.row), found.reads.index(found.dot.step)
    groups, inner = schedule.split(loops[row], [None, kind.tile.rows])
    others = [loop for n, loop in enumerate(loops) if n not in (row, step)]
    schedule.reorder(*others, groups, inner, loops[step])
    _unroll(schedule, [*others, groups])
    schedule.tensorize(inner, kind.register("rows"))


def _load_columns(schedule: Schedule, block: SBlockRV, kind: TileKind) -> None:
    count = len(schedule.get(block).iter_vars)
    *others, first, _, _ = schedule.get_loops(block)[-count:]
    _unroll(schedule, others)
    schedule.tensorize(first, kind.register("columns"))


def _store(schedule: Schedule, block: SBlockRV, kind: TileKind) -> None:
    count = len(schedule.get(block).iter_vars)
    *others, rows, lanes = schedule.get_loops(block)[-count:]
    groups, row = schedule.split(rows, [None, kind.tile.rows])
    panels, lane = schedule.split(lanes, [None, kind.tile.lanes])
    schedule.reorder(*others, groups, panels, row, lane)
    _unroll(schedule, [*others, groups, panels])
    schedule.tensorize(row, kind.register("stores"))


def _vectorize(schedule: Schedule, block: SBlockRV, tile: MacroTile) -> None:
    """Compute what follows, for a group of tiles, in vectors."""
    lanes = tile.panels * tile.lanes
    length = _VECTOR if lanes % _VECTOR == 0 else tile.lanes
    vectors, inner = schedule.split(schedule.get_loops(block)[-1], [None, length])
    schedule.unroll(vectors)
    schedule.vectorize(inner)
    schedule.annotate(vectors, FINISHED, 1)


def _unroll(schedule: Schedule, loops: Sequence[LoopRV]) -> None:
    """Unroll the loops around an instruction, whose tiles are then known."""
    for loop in loops:
        schedule.unroll(loop)
        schedule.annotate(loop, FINISHED, 1)
