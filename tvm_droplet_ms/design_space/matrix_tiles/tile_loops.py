# SPDX-License-Identifier: Apache-2.0
"""Schedule steps that map a matrix product to tiles: copies and intrinsics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IndexMap

from ..register_tiles.tiling import FINISHED
from .tile_intrinsics import SCOPE, register
from .tile_kind import TileKind


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
    *,
    sums: LoopRV,
    steps: LoopRV,
    tiles: Sequence[LoopRV],
    row: LoopRV,
    group: LoopRV,
    last: SBlockRV | None = None,
    moves_later: bool = False,
) -> None:
    """Load, multiply and store with intrinsics.

    - ``sums``: the outermost reduction loop.
    - ``steps``: the innermost reduction loop around the tiles.
    - ``tiles``: the loops over tiles of sums that have several iterations.
    - ``row``: the loop over the rows of a tile, around the loops over its lanes and products.
    - ``group``: the loop that computes a group of sums in each iteration.
    - ``last``: the consumer to compute after each group.
    - ``moves_later``: whether blocks are moved afterward; TVM cannot copy the schedule then.
    """
    held_rows, held_columns = kind.tile.held
    rows_at = steps if held_rows == kind.tile.along_rows else tiles[-1]
    columns_at = steps if held_columns == kind.tile.panels else tiles[-1]
    schedule.compute_at(copies.rows, rows_at, preserve_unit_loops=True)
    schedule.compute_at(copies.columns, columns_at, preserve_unit_loops=True)
    for after in (copies.sums, last):
        if after is not None:
            schedule.reverse_compute_at(after, group, preserve_unit_loops=True)
    loops = [
        (_loop_of_rows(schedule, copies, kind), "rows"),
        (_loop_of_columns(schedule, copies.columns, kind), "columns"),
        (_loop_of_sums(schedule, copies.sums, kind), "stores"),
    ]
    zeros = schedule.decompose_reduction(block, sums)
    inner_loops = len(tiles) + 2
    loops += [(schedule.get_loops(zeros)[-inner_loops], "zeros"), (row, "products")]
    _unroll(schedule, [steps, *tiles])
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
