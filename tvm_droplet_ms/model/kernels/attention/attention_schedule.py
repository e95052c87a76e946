# SPDX-License-Identifier: Apache-2.0
"""Design spaces for fused attention on a CPU, with vectors or with bfloat16 matrix tiles."""

import math
from dataclasses import dataclass, replace
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ExprRV, LoopRV, SBlockRV
from tvm.tirx import IndexMap

from ....design_space.dot_products.dot_intrinsics import HALF, imported_code
from ....design_space.dot_products.dot_rule import IMPORTED
from ....design_space.matrix_tiles.kept_tiles import function_code
from ....design_space.matrix_tiles.tile_rule import (
    TileCopies,
    TileLoops,
    copy_to_tiles,
    tensorize_tiles,
)
from ....design_space.matrix_tiles.tile_shapes import (
    MacroTile,
    TileKind,
    largest_part,
    offered_tiles,
)
from ....design_space.register_tiles.tiling import FINISHED, perfect_tile, sample
from .attention_compute import row_unit
from .attention_packing import LANES, PAIR
from .stages import (
    half_dot,
    inline_others,
    is_of_halves,
    products_of_values,
    reduce_lanes,
    tensorize,
    vectorize,
)

_MOST_ROWS, _MOST_PANELS = 8, 4
"""Maximum rows, and panels of keys, that are computed together."""

_OF_A_TILE = (
    *("mixed", "total", "total_of_lane", "weights", "largest", "largest_of_lane"),
    *("scores", "queries"),
)
"""The stages that are computed for each tile of rows, the last one first."""


_PACKED = ("keys", "values")

_STAGES = (*_OF_A_TILE, *_PACKED, "normal")

_MOST_TILE_ROWS, _MOST_TILE_BYTES = 64, 1 << 21
"""Maximum rows of a tile, and maximum bytes of its scores and weights: the size of an L2 cache. A
tile with the fewest rows may exceed the bytes."""


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


def schedule_attention(schedule: Schedule, normal: SBlockRV) -> list[Schedule]:
    """Return two design spaces: keys and values are packed per head, or all in advance.

    A tile of rows goes through all stages. Products are accumulated in registers: rows times
    panels of scores, and rows times vectors of values. The consumers of the attention in the kernel
    are computed for each tile too.
    """
    last = inline_others(schedule, _STAGES)
    beforehand = schedule.copy()
    _pack(schedule, _tile(schedule, normal, last))
    _tile(beforehand, normal, last)
    _pack(beforehand)
    return [schedule, beforehand]


def schedule_attention_in_tiles(schedule: Schedule, normal: SBlockRV) -> list[Schedule]:
    """Return both design spaces with bfloat16 matrix tiles, for each combination of tiles."""
    last = inline_others(schedule, _STAGES)
    spaces = []
    for tiles in attention_tiles(schedule):
        # TVM cannot copy a schedule that has intrinsics.
        space, beforehand = schedule.copy(), schedule.copy()
        _pack(space, _tile(space, normal, last, tiles))
        _tile(beforehand, normal, last, tiles)
        _pack(beforehand)
        spaces += [space, beforehand]
    return spaces


def _pack(schedule: Schedule, head: LoopRV | None = None) -> None:
    """Pack keys and values: for each head if its loop is given, otherwise all in advance."""
    for name in _PACKED:
        block = schedule.get_sblock(name)
        if head is not None:
            schedule.compute_at(block, head, preserve_unit_loops=True)
            if is_of_halves(schedule):
                # LLVM takes 20 s for some hundred vectors whose elements are gathered singly.
                schedule.annotate(schedule.get_loops(block)[1], "pragma_auto_unroll_max_step", 0)
    for name in _PACKED:
        block = schedule.get_sblock(name)
        if is_of_halves(schedule):
            schedule.fuse(*schedule.get_loops(block)[-2:])
            vectorize(schedule, block, PAIR * LANES)
        else:
            vectorize(schedule, block)


def _tile(
    schedule: Schedule, normal: SBlockRV, last: SBlockRV, tiles: AttentionTiles | None = None
) -> LoopRV:
    """Compute all stages for a tile of rows; return the loop over the heads."""
    block = schedule.get_sblock
    *batch, rows, width = schedule.get_loops(normal)
    lanes = math.gcd(int(schedule.get(width).extent), LANES)
    extent = int(schedule.get(rows).extent)
    unit = row_unit(extent) if tiles is None else tiles.rows
    together: ExprRV | int = unit
    if tiles is None:
        together = sample(schedule, [n for n in range(2, _MOST_ROWS + 1) if unit % n == 0])
    *_, panels, panel_lanes = schedule.get(block("scores")).writes[0].source.shape
    row_bytes = 8 * int(panels) * int(panel_lanes)
    tile_rows = sample(schedule, _tile_extents(extent, unit, row_bytes))
    if is_of_halves(schedule):
        # MetaSchedule cannot parallelize a loop around a decomposed reduction.
        batch = [schedule.fuse(*batch)]
        schedule.parallel(batch[-1])
        schedule.annotate(batch[-1], FINISHED, 1)
        # On the outermost loop: an unrolled loop would import the functions many times.
        dots = [half_dot(each) for each in sorted({LANES, lanes})]
        code = " ".join(str(imported_code(dot)) for dot in dots)
        schedule.annotate(batch[-1], IMPORTED, code if tiles is None else tiles.code)
    mixed, scores = block("mixed"), block("scores")
    copied: dict[str, TileCopies] = {}
    if tiles is not None:
        panels_first(schedule, scores)
        copied = {"mixed": copy_values(schedule, mixed), "scores": copy_keys(schedule, scores)}
    tile, inner = schedule.split(rows, [None, tile_rows])
    schedule.split(inner, [None, together])
    vectorize(schedule, normal)
    for name in _OF_A_TILE:
        of = copied.get(name)
        # The stores follow a product, and the loads precede it.
        stages = [block(name)] if of is None else [of.sums, block(name), of.rows, of.columns]
        for stage in stages:
            schedule.compute_at(stage, tile, preserve_unit_loops=True)
    schedule.reverse_compute_at(last, tile, preserve_unit_loops=True)
    vectorize(schedule, last)
    if tiles is None:
        _products_of_keys(schedule, scores, together)
        products_of_values(schedule, mixed, together, lanes)
    else:
        multiply_in_tiles(schedule, scores, copied["scores"], tiles.of_keys, of_keys=True)
        multiply_in_tiles(schedule, mixed, copied["mixed"], tiles.of_values, of_keys=False)
    reduce_lanes(schedule)
    for name in ("queries", "weights"):
        vectorize(schedule, block(name))
    return batch[-1]


def _tile_extents(rows: int, unit: int, row_bytes: int) -> list[int]:
    """Return the candidate rows of a tile, ascending; ``rows`` is a multiple of ``unit``."""
    most = min(_MOST_TILE_ROWS, _MOST_TILE_BYTES // row_bytes)
    extents = [n for n in range(unit, rows + 1, unit) if rows % n == 0]
    return [n for n in extents if n <= most] or extents[:1]


def _products_of_keys(schedule: Schedule, scores: SBlockRV, together: ExprRV | int) -> None:
    *_, rows, panels, lane, depth = schedule.get_loops(scores)
    row, register_row = schedule.split(rows, [None, together])
    outer, panel = perfect_tile(schedule, panels, 2, _MOST_PANELS)
    for loop in (register_row, panel):
        schedule.unroll(loop)
    if is_of_halves(schedule):
        step, pair = schedule.split(depth, [None, PAIR])
        schedule.reorder(outer, row, step, register_row, panel, lane, pair)
        tensorize(schedule, (step, panel, lane), LANES)
    else:
        schedule.reorder(outer, row, depth, register_row, panel, lane)
        schedule.vectorize(lane)


_HALF_BYTES, _MOST_UNROLLED = 2, 4


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


def multiply_in_tiles(
    schedule: Schedule, block: SBlockRV, copies: TileCopies, tile: MacroTile, *, of_keys: bool
) -> None:
    """Multiply queries by panels of keys, or weights by vectors of values.

    ``of_keys``: whether the panels of a tile group are a separate axis, as for keys.
    """
    loops = schedule.get_loops(block)
    rows, depth = loops[-4 if of_keys else -3], loops[-1]
    around, group, in_tile = schedule.split(rows, [None, tile.groups, tile.rows])
    if of_keys:
        outer, several = schedule.split(loops[-3], [None, tile.panels])
        lane = loops[-2]
    else:
        outer, several, lane = schedule.split(loops[-2], [None, tile.panels, tile.lanes])
    parts = int(schedule.get(depth).extent) // tile.depth
    factors = [None, largest_part(parts, _MOST_UNROLLED), tile.depth]
    steps, unrolled, products = schedule.split(depth, factors)
    counted = [(group, tile.groups), (several, tile.panels)]
    counted = counted[::-1] if of_keys else counted
    tiles = [loop for loop, count in counted if count > 1]
    single = [loop for loop, count in counted if count == 1]
    schedule.reorder(outer, *single, around, steps, unrolled, *tiles, in_tile, lane, products)
    index = str(schedule.get(block).iter_vars[0].var.ty)
    kind = TileKind(replace(tile, apart=int(of_keys)), HALF, HALF, 1, 0, 0, index)
    own = TileLoops(steps, unrolled, tiles, in_tile, around, around)
    tensorize_tiles(schedule, block, copies, kind, own, moves_later=True)
