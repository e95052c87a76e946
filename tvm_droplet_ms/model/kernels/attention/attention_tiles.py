# SPDX-License-Identifier: Apache-2.0
"""The two products of a bfloat16 attention in matrix tiles."""

from dataclasses import dataclass, replace
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target
from tvm.tirx import IndexMap

from ....design_space.dot_products.dot_intrinsics import HALF
from ....design_space.matrix_tiles.find_matrix import product_geometry
from ....design_space.matrix_tiles.tile_configuration import function_code
from ....design_space.matrix_tiles.tile_kind import TileKind
from ....design_space.matrix_tiles.tile_loops import TileCopies, copy_to_tiles, tensorize_tiles
from ....design_space.matrix_tiles.tile_shapes import (
    MacroTile,
    largest_part,
    offered_tiles,
    padded_map,
)
from .attention_packing import LANES, Extents

_HALF_BYTES, _MOST_UNROLLED = 2, 4


@dataclass(frozen=True)
class AttentionTiles:
    """The tiles of both products: of queries and keys, and of weights and values."""

    of_keys: MacroTile
    of_values: MacroTile

    @property
    def rows(self) -> int:
        """Number of rows that are multiplied together."""
        return self.of_keys.rows * self.of_keys.groups

    @property
    def code(self) -> str:
        """The functions that load the configurations, in LLVM IR."""
        return function_code(_HALF_BYTES, self.of_keys, self.of_values)


def tiled_rows(extents: Extents) -> int | None:
    """Return the rows of an attention, padded for tiles; None if tiles do not apply.

    Tiles apply if the current target multiplies bfloat16 in tiles, both products fit them
    (``product_geometry``), there are at least ``LANES`` rows, and ``LANES`` divides the width.
    """
    target = Target.current(allow_none=True)
    if target is None or extents.width % LANES or extents.rows < LANES:
        return None
    columns = extents.panels * LANES
    keys = product_geometry(target, HALF, extents.depth, columns)
    values = product_geometry(target, HALF, columns, extents.width)
    if keys is None or values is None:
        return None
    return padded_map(extents.rows, 1, *keys)[0]


def attention_tiles(schedule: Schedule) -> list[AttentionTiles]:
    """Return the combinations of tiles to choose from, the fastest by estimate first."""
    scores, mixed = (schedule.get(schedule.get_sblock(name)) for name in ("scores", "mixed"))
    *_, rows, panels, _, depth = (int(axis.dom.extent) for axis in scores.iter_vars)
    *_, width, columns = (int(axis.dom.extent) for axis in mixed.iter_vars)
    lengths = [_length(depth), _length(columns)]
    found = []
    for tile in offered_tiles(rows, 1, panels, LANES, lengths[0], depth // lengths[0]):
        others = (
            replace(tile, depth=lengths[1], panels=count)
            for count in range(width // LANES, 0, -1)
            if (width // LANES) % count == 0
        )
        found.append(AttentionTiles(tile, next(each for each in others if each.fits())))
    return found


def _length(products: int) -> int:
    """Return the number of products in a row of a tile."""
    return next(n for n in range(2 * LANES, 0, -2) if products % n == 0)


def panels_first(schedule: Schedule, scores: SBlockRV) -> None:
    """Store the scores panel by panel, and each panel row by row, as tiles do."""
    axes = schedule.get(scores).iter_vars

    def order(*at: Any) -> list[Any]:
        return [*at[:-3], at[-2], at[-3], at[-1]]

    index = IndexMap.from_func(order, ndim=len(axes) - 1, index_dtype=str(axes[0].var.ty))
    schedule.transform_layout(scores, ("write", 0), index)


def copy_keys(schedule: Schedule, scores: SBlockRV) -> TileCopies:
    """Make the tile copies of queries and keys."""
    count = len(schedule.get(scores).iter_vars)
    reads = [n for n in range(count) if n not in (count - 3, count - 2)]
    queries = _source(schedule, scores, count - 2)
    return copy_to_tiles(schedule, scores, queries, reads, count - 4, count - 1, LANES)


def copy_values(schedule: Schedule, mixed: SBlockRV) -> TileCopies:
    """Make the tile copies of weights and values."""
    count = len(schedule.get(mixed).iter_vars)
    reads = [n for n in range(count) if n != count - 2]
    weights = _source(schedule, mixed, count - 1)
    return copy_to_tiles(schedule, mixed, weights, reads, count - 3, count - 1, LANES)


def _source(schedule: Schedule, block: SBlockRV, rank: int) -> Any:
    """Return the factor with a given number of axes."""
    sources = [read.source for read in schedule.get(block).reads]
    return next(each for each in sources if len(each.shape) == rank)


def multiply_keys(
    schedule: Schedule, scores: SBlockRV, copies: TileCopies, tile: MacroTile
) -> None:
    """Multiply queries by panels of keys; the panels of a tile group are a separate axis."""
    *_, rows, panels, lane, depth = schedule.get_loops(scores)
    around, group, in_tile = schedule.split(rows, [None, tile.groups, tile.rows])
    outer, several = schedule.split(panels, [None, tile.panels])
    steps, unrolled, products = schedule.split(depth, _step_parts(schedule, depth, tile))
    tiles, single = _by_count((several, tile.panels), (group, tile.groups))
    schedule.reorder(outer, *single, around, steps, unrolled, *tiles, in_tile, lane, products)
    tensorize_tiles(
        schedule,
        scores,
        copies,
        _kind(schedule, scores, replace(tile, apart=1)),
        sums=steps,
        steps=unrolled,
        tiles=tiles,
        row=in_tile,
        group=around,
        moves_later=True,
    )


def multiply_values(
    schedule: Schedule, mixed: SBlockRV, copies: TileCopies, tile: MacroTile
) -> None:
    """Multiply weights by vectors of values."""
    *_, rows, width, columns = schedule.get_loops(mixed)
    around, group, in_tile = schedule.split(rows, [None, tile.groups, tile.rows])
    outer, panel, lane = schedule.split(width, [None, tile.panels, tile.lanes])
    steps, unrolled, products = schedule.split(columns, _step_parts(schedule, columns, tile))
    tiles, single = _by_count((group, tile.groups), (panel, tile.panels))
    schedule.reorder(outer, *single, around, steps, unrolled, *tiles, in_tile, lane, products)
    tensorize_tiles(
        schedule,
        mixed,
        copies,
        _kind(schedule, mixed, tile),
        sums=steps,
        steps=unrolled,
        tiles=tiles,
        row=in_tile,
        group=around,
        moves_later=True,
    )


def _step_parts(schedule: Schedule, loop: LoopRV, tile: MacroTile) -> list[int | None]:
    """Return the split of a reduction loop: steps, unrolled steps, products of an instruction."""
    steps = int(schedule.get(loop).extent) // tile.depth
    return [None, largest_part(steps, _MOST_UNROLLED), tile.depth]


def _by_count(*loops: tuple[LoopRV, int]) -> tuple[list[LoopRV], list[LoopRV]]:
    """Partition the loops into loops over several tiles and loops over one tile."""
    several = [loop for loop, count in loops if count > 1]
    return several, [loop for loop, count in loops if count == 1]


def _kind(schedule: Schedule, block: SBlockRV, tile: MacroTile) -> TileKind:
    return TileKind(tile, HALF, HALF, 1, 0, 0, str(schedule.get(block).iter_vars[0].var.ty))
