# SPDX-License-Identifier: Apache-2.0
"""A MetaSchedule schedule rule for matrix tiles.

Groups of tiles of sums are accumulated in registers. The consumers are computed group by group from
a buffer in L1. Rows are read in place: in a convolution they are the pixels of a line, or of all
lines (``joined_lines``), and each tap shifts the address.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IndexMap, IterVar

from ..dot_products.dot_rule import IMPORTED, pack_if_worthwhile
from ..dot_products.find_dot import DotUnit, factors_of
from ..register_tiles.tiling import (
    FINISHED,
    FREE,
    BlockRule,
    finish_outer,
    inlined_consumers,
    is_marked,
    is_plain,
    is_written,
    perfect_tile,
)
from ..trees import entry_function
from .find_matrix import FoundMatrix, find_matrix, join_taps
from .joined_lines import join_lines, join_sums
from .kept_tiles import function_code
from .tile_intrinsics import SCOPE, register
from .tile_shapes import MacroTile, TileKind, offered_tiles

_MOST_UNROLLED = 4
_VECTOR = 16


def MatrixTiles(units: Sequence[DotUnit], is_parallel: bool) -> ScheduleRule:
    """Make the rule for blocks that sum matrix products, which leaves all others to later rules.

    A block gets a design space for each combination of tiles. ``units``: the CPU's tile units.
    ``is_parallel``: whether several threads share a kernel.
    """

    def apply(sch: Schedule, block: SBlockRV) -> list[Schedule]:
        if not is_plain(sch, block):
            return [sch]
        found = _find(units, sch, block)
        if found is None and _join_taps(units, sch, block):
            found = _find(units, sch, block)
        if found is not None and found.is_joinable and _is_output(sch, block):
            found = replace(found, is_joinable=False)
        tiles = [] if found is None else _tiles(sch.get(block), found)
        if found is None or not tiles or not pack_if_worthwhile(sch, block, found.dot):
            return [sch]
        rows = 0
        if found.is_joinable:
            rows = int(sch.get(block).iter_vars[found.row].dom.extent)
            found = join_lines(sch, block, found)
        last = inlined_consumers(sch, block)
        spaces = []
        for tile in tiles:
            space = sch.copy()
            _tile(space, block, found, last, tile, is_parallel, rows)
            spaces.append(space)
        return spaces

    return BlockRule(apply)


def _find(units: Sequence[DotUnit], schedule: Schedule, block: SBlockRV) -> FoundMatrix | None:
    finds = (find_matrix(schedule.get(block), unit) for unit in units)
    return next((find for find in finds if find is not None), None)


def _join_taps(units: Sequence[DotUnit], schedule: Schedule, block: SBlockRV) -> bool:
    """Fuse taps and channels into one axis; return whether that was possible."""
    for unit in units:
        loads = factors_of(schedule.get(block), unit)
        if loads is not None:
            is_constant = is_marked(schedule, loads[1].source, FREE)
            return join_taps(schedule, block, unit, is_constant)
    return False


def _is_output(schedule: Schedule, block: SBlockRV) -> bool:
    """Return whether a block writes an output of the kernel, whose shape must not change."""
    return is_written(schedule.get(block), list(entry_function(schedule.mod).params))


def _tiles(node: Any, found: FoundMatrix) -> list[MacroTile]:
    extents = [int(axis.dom.extent) for axis in node.iter_vars]
    axes = zip(node.iter_vars, extents, strict=True)
    steps = prod(extent for axis, extent in axes if axis.iter_type != IterVar.DataPar)
    rows, lines = extents[found.row], 1 if found.line is None else extents[found.line]
    return offered_tiles(
        *((rows * lines, 1) if found.is_joinable else (rows, lines)),
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
    rows: int,
) -> None:
    """Schedule a product in tiles.

    ``last``: its consumer, if there is one to compute after each group of tiles. ``rows``: the rows
    of a line if ``join_lines`` has joined the lines; otherwise 0.
    """
    axes = list(schedule.get(block).iter_vars)
    index = str(axes[0].var.ty)
    types = found.dot.dot.shared, found.dot.dot.own
    kind = TileKind(tile, *types, found.stride, found.pitch, found.middle, index)
    copies = copy_to_tiles(
        schedule, block, found.dot.shared, found.reads, found.row, found.dot.step, tile.lanes
    )
    place_sums = join_sums(schedule, block, copies.sums, rows) if rows else None
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
    around_rows: list[LoopRV] = []
    for number, axis in enumerate(axes):
        if rows and number == found.row:
            around_rows.append(loops[number])
        elif axis.iter_type == IterVar.DataPar:
            around, within = perfect_tile(schedule, loops[number], 2)
            outer.append(around)
            middle.append(within)
    sums = [
        loops[number]
        for number, axis in enumerate(axes)
        if axis.iter_type != IterVar.DataPar and number != found.dot.step
    ]
    steps, unrolled = perfect_tile(schedule, loops[found.dot.step], 2, _MOST_UNROLLED)
    schedule.reorder(*outer, *middle, *around_rows, *sums, steps, unrolled, *tiles, row, lane, step)
    first = finish_outer(schedule, outer, is_parallel)
    schedule.annotate(first, IMPORTED, function_code(kind.element, tile))
    group = [*middle, *around_rows][-1]
    # The consumer reads lines, and a tile ends within a line: it follows all rows.
    tile_loops = TileLoops([*sums, steps][0], unrolled, tiles, row, group, middle[-1])
    tensorize_tiles(schedule, block, copies, kind, tile_loops, last, place_sums=place_sums)
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


@dataclass(frozen=True)
class TileCopies:
    """The blocks that load and store the tiles of a product.

    - ``rows``, ``columns``, ``sums``: the copies of the shared factor, the weights and the results.
    - ``axes``: the number of axes of ``rows``.
    - ``row``, ``step``: the positions of the axes along rows and along products among these.
    """

    rows: SBlockRV
    columns: SBlockRV
    sums: SBlockRV
    axes: int
    row: int
    step: int


@dataclass(frozen=True)
class TileLoops:
    """The loops of a product around its instructions.

    - ``sums``: the outermost reduction loop.
    - ``steps``: the innermost reduction loop around the tiles.
    - ``tiles``: the loops over tiles of sums that have several iterations.
    - ``row``: the loop over the rows of a tile, around the loops over its lanes and products.
    - ``group``: the loop that computes a group of sums in each iteration.
    - ``consumer``: the loop that computes the consumer in each iteration.
    """

    sums: LoopRV
    steps: LoopRV
    tiles: Sequence[LoopRV]
    row: LoopRV
    group: LoopRV
    consumer: LoopRV


def copy_to_tiles(
    schedule: Schedule,
    block: SBlockRV,
    shared: Any,
    reads: Sequence[int],
    row: int,
    step: int,
    lanes: int,
) -> TileCopies:
    """Make the tile copies of a product.

    ``shared``: the buffer that all columns share. ``reads``: the block axes that index it,
    ascending. ``row``, ``step``: the axes along rows and along products. ``lanes``: the lanes of a
    tile.
    """
    node = schedule.get(block)
    index, (one, _) = str(node.iter_vars[0].var.ty), node.reads
    place = 0 if one.source.same_as(shared) else 1
    rows = schedule.reindex(block, ("read", place))
    own = reads.index(row), reads.index(step)

    def order(*indices: Any) -> list[Any]:
        others = [each for n, each in enumerate(indices) if n not in own]
        return [*others, *(indices[n] for n in own)]

    index_map = IndexMap.from_func(order, ndim=len(reads), index_dtype=index)
    schedule.transform_layout(rows, ("write", 0), index_map)
    schedule.set_scope(rows, 0, SCOPE)
    # For this block only: another product may read the same weights.
    columns = schedule.cache_read(block, 1 - place, SCOPE, consumer_blocks=[block])
    shape = schedule.get(columns).writes[0].source.shape
    if int(shape[-2]) > lanes:
        # If a row of weights has the lanes of all panels, make each panel a separate tile.
        def by_panel(*at: Any) -> list[Any]:
            return [*at[:-3], at[-2] // lanes, at[-3], at[-2] % lanes, at[-1]]

        panel_map = IndexMap.from_func(by_panel, ndim=len(shape), index_dtype=index)
        schedule.transform_layout(columns, ("write", 0), panel_map)
    sums = schedule.cache_write(block, 0, SCOPE)
    return TileCopies(rows, columns, sums, len(reads), *own)


def tensorize_tiles(
    schedule: Schedule,
    block: SBlockRV,
    copies: TileCopies,
    kind: TileKind,
    of: TileLoops,
    last: SBlockRV | None = None,
    *,
    moves_later: bool = False,
    place_sums: Callable[[], None] | None = None,
) -> None:
    """Load, multiply and store with intrinsics.

    ``of``: the loops of the product. ``last``: the consumer to compute after each group.
    ``moves_later``: whether blocks are moved afterward; TVM cannot copy the schedule then.
    ``place_sums``: called when the consumer has its place.
    """
    held_rows, held_columns = kind.tile.held
    rows_at = of.steps if held_rows == kind.tile.along_rows else of.tiles[-1]
    columns_at = of.steps if held_columns == kind.tile.panels else of.tiles[-1]
    schedule.compute_at(copies.rows, rows_at, preserve_unit_loops=True)
    schedule.compute_at(copies.columns, columns_at, preserve_unit_loops=True)
    schedule.reverse_compute_at(copies.sums, of.group, preserve_unit_loops=True)
    if last is not None:
        schedule.reverse_compute_at(last, of.consumer, preserve_unit_loops=True)
    if place_sums is not None:
        place_sums()
    loops = [
        (_loop_of_rows(schedule, copies, kind), "rows"),
        (_loop_of_columns(schedule, copies.columns, kind), "columns"),
        (_loop_of_sums(schedule, copies.sums, kind), "stores"),
    ]
    zeros = schedule.decompose_reduction(block, of.sums)
    inner_loops = len(of.tiles) + 2
    loops += [(schedule.get_loops(zeros)[-inner_loops], "zeros"), (of.row, "products")]
    _unroll(schedule, [of.steps, *of.tiles])
    for loop, what in loops:
        # After tensorizing a loop, TVM keeps a dependency on the replaced block, and
        # ``Schedule.copy`` fails. If the loop becomes a block first, ``compute_at`` may refuse the
        # blocks around it.
        inside = loop if moves_later else schedule.blockize(loop)
        schedule.tensorize(inside, register(kind, what))


def _loop_of_rows(schedule: Schedule, copies: TileCopies, kind: TileKind) -> LoopRV:
    """Return the loop over the rows of a loaded tile of rows."""
    loops = schedule.get_loops(copies.rows)[-copies.axes :]
    groups, inner = schedule.split(loops[copies.row], [None, kind.tile.rows])
    others = [loop for n, loop in enumerate(loops) if n not in (copies.row, copies.step)]
    schedule.reorder(*others, groups, inner, loops[copies.step])
    _unroll(schedule, [*others, groups])
    return inner


def _loop_of_columns(schedule: Schedule, block: SBlockRV, kind: TileKind) -> LoopRV:
    """Return the loop over the rows of a loaded tile of columns."""
    count = len(schedule.get(block).iter_vars)
    *others, first, lanes, products = schedule.get_loops(block)[-count:]
    panels, lane = schedule.split(lanes, [None, kind.tile.lanes])
    schedule.reorder(*others, panels, first, lane, products)
    _unroll(schedule, [*others, panels])
    return first


def _loop_of_sums(schedule: Schedule, block: SBlockRV, kind: TileKind) -> LoopRV:
    """Return the loop over the rows of a stored tile of sums."""
    count = len(schedule.get(block).iter_vars)
    *others, lanes = schedule.get_loops(block)[-count:]
    rows = others.pop(-1 - kind.middle)
    groups, row = schedule.split(rows, [None, kind.tile.rows])
    panels, lane = schedule.split(lanes, [None, kind.tile.lanes])
    schedule.reorder(*others, groups, panels, row, lane)
    _unroll(schedule, [*others, groups, panels])
    return row


def _unroll(schedule: Schedule, loops: Sequence[LoopRV]) -> None:
    """Unroll the loops around an instruction, so that its tile registers are constants."""
    for loop in loops:
        schedule.unroll(loop)
        schedule.annotate(loop, FINISHED, 1)
