# SPDX-License-Identifier: Apache-2.0
"""A MetaSchedule schedule rule for register tiles of sums of float products.

TVM's tiles must divide the loop extents. Tiles that fill 16 registers do not divide 14, 49 or 197
rows. Here the last tile along the rows may be smaller. ``LoopPartition`` splits it into a separate
loop without conditions. A tile has a sum for each pair of a row and a vector, and loads each row
and each vector once per step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.ir.expr import TensorLoad
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm.tirx import IndexMap, IntImm, IterVar

from ..trees import added_product, entry_function, mentions
from .partitions import PARTITIONED
from .tiling import (
    FINISHED,
    FREE,
    BlockRule,
    finish_outer,
    inlined_consumers,
    is_marked,
    is_plain,
    is_written,
    perfect_tile,
    sample,
)

_MOST_UNROLLED = 8


def RegisterTiles(size: int, registers: int, is_parallel: bool) -> ScheduleRule:
    """Make the rule that adds design spaces to TVM's for blocks that sum float products.

    A block keeps the unchanged schedule, for TVM's rules, and gets one for each tile length.
    ``size``: the bytes of a vector register. ``registers``: the number of vector registers.
    ``is_parallel``: whether several threads share a kernel.
    """

    def apply(sch: Schedule, block: SBlockRV) -> list[Schedule]:
        node = sch.get(block)
        found = find_product(node)
        if found is None or not is_plain(sch, block):
            return [sch]
        if not found.is_in_order and not is_marked(sch, found.weights, FREE):
            return [sch]
        rows, columns = (int(node.iter_vars[n].dom.extent) for n in (found.row, found.lane))
        tiled = sch.copy()
        last = inlined_consumers(tiled, block)
        lanes = 8 * size // node.writes[0].source.dtype.bits
        if columns % lanes or (last is None and sch.get_consumers(block)):
            return [sch]
        line = outer_rows(node, found)
        # Several threads need the outer axis.
        if line is not None and last is not None and not is_parallel:
            if _can_be_one(tiled, node, last):
                rows *= int(node.iter_vars[line].dom.extent)
                _flatten(tiled, block, last, line)
        spaces = [sch]
        for length, talls in offered_tiles(rows, columns // lanes, registers).items():
            space = tiled.copy()
            _tile(space, block, last, lanes, length, talls, is_parallel)
            spaces.append(space)
        return spaces

    return BlockRule(apply)


def _can_be_one(schedule: Schedule, node: Any, last: SBlockRV) -> bool:
    """Return whether two axes of a product and its consumer can be fused.

    The sums must not be an output of the kernel, because its shape is fixed. The consumer must
    write as many elements as the product.
    """
    shapes = [
        [int(extent) for extent in each.writes[0].source.shape]
        for each in (node, schedule.get(last))
    ]
    is_result = is_written(node, list(entry_function(schedule.mod).params))
    return shapes[0] == shapes[1] and is_plain(schedule, last) and not is_result


def _flatten(schedule: Schedule, block: SBlockRV, last: SBlockRV, line: int) -> None:
    """Fuse two axes, in both blocks and in the sums between them."""
    width = int(schedule.get(block).iter_vars[line + 1].dom.extent)

    def flat(*indices: Any) -> list[Any]:
        pixel = indices[line] * width + indices[line + 1]
        return [*indices[:line], pixel, *indices[line + 2 :]]

    count = len(schedule.get(last).iter_vars)
    dtype = str(schedule.get(block).iter_vars[0].var.ty)
    sums = IndexMap.from_func(flat, ndim=count, index_dtype=dtype)
    own = IndexMap.from_func(flat, ndim=len(schedule.get(block).iter_vars), index_dtype=dtype)
    schedule.transform_layout(block, ("write", 0), sums)
    schedule.transform_block_layout(last, sums)
    schedule.transform_block_layout(block, own)


def _tile(
    schedule: Schedule,
    block: SBlockRV,
    last: SBlockRV | None,
    lanes: int,
    length: int,
    talls: list[int],
    is_parallel: bool,
) -> None:
    axes, found = schedule.get(block).iter_vars, find_product(schedule.get(block))
    assert found is not None
    loops = list(schedule.get_loops(block))
    panels, vectors, inner = schedule.split(loops[found.lane], [None, length, lanes])
    outer, panel = perfect_tile(schedule, panels, 2)
    tiles, rows = schedule.split(loops[found.row], [None, sample(schedule, talls)])
    steps, unrolled = perfect_tile(schedule, loops[found.step], 2, _MOST_UNROLLED)
    others = [n for n in range(len(axes)) if n not in (found.lane, found.row, found.step)]
    around = [loops[n] for n in others if axes[n].iter_type == IterVar.DataPar]
    sums = [loops[n] for n in others if axes[n].iter_type != IterVar.DataPar]
    schedule.reorder(outer, *around, tiles, panel, *sums, steps, unrolled, rows, vectors, inner)
    schedule.annotate(tiles, PARTITIONED, True)
    for loop in (unrolled, rows, vectors):
        schedule.unroll(loop)
    schedule.vectorize(inner)
    finish_outer(schedule, [outer, *around], is_parallel)
    schedule.annotate(vectors, FINISHED, 1)
    if last is None:
        return
    schedule.reverse_compute_at(last, panel, preserve_unit_loops=True)
    *_, rows, columns = schedule.get_loops(last)
    vectors, inner = schedule.split(columns, [None, lanes])
    for loop in (rows, vectors):
        schedule.unroll(loop)
    schedule.vectorize(inner)
    schedule.annotate(vectors, FINISHED, 1)


@dataclass(frozen=True)
class FoundProduct:
    """The products that a block sums; axes are positions among the block's axes.

    - ``lane``: the axis along the numbers of a vector, which are contiguous in the result.
    - ``row``: the innermost data-parallel axis that does not index the weights.
    - ``step``: the innermost reduction axis.
    - ``weights``: the buffer that vectors are loaded from. ``is_in_order``: whether the numbers of
      a vector are contiguous in it. ``along``: the axes that index it.
    - ``shared``: the load of the scalar that multiplies a vector.
    """

    lane: int
    row: int
    step: int
    weights: Any
    is_in_order: bool
    along: set[int]
    shared: Any


def find_product(block: Any) -> FoundProduct | None:
    """Find the products of floats of a block; None if the block computes something else."""
    axes, loads = list(block.iter_vars), _factors(block)
    if (
        not loads
        or not block.body.indices
        or not all(isinstance(axis.dom.extent, IntImm) for axis in axes)
    ):
        return None
    lane = next((n for n, axis in enumerate(axes) if axis.var.same_as(block.body.indices[-1])), -1)
    own = [load for load in loads if lane in _axes_of(load, axes)]
    if len(own) != 1:
        return None
    along = _axes_of(own[0], axes)
    rows, sums = (
        [n for n, axis in enumerate(axes) if axis.iter_type == kind and int(axis.dom.extent) > 1]
        for kind in (IterVar.DataPar, IterVar.CommReduce)
    )
    rows = [row for row in rows if row not in along]
    if not rows or not sums:
        return None
    is_in_order = axes[lane].var.same_as(own[0].indices[-1])
    shared = next(load for load in loads if load is not own[0])
    return FoundProduct(lane, rows[-1], sums[-1], own[0].source, is_in_order, along, shared)


def outer_rows(block: Any, found: FoundProduct) -> int | None:
    """Return the position of an axis that can be fused with the rows, in all reads and writes.

    An example is the lines of images in a 1x1 convolution without strides. Returns None if there is
    no such axis.
    """
    axes, analyzer = list(block.iter_vars), Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    line = found.row - 1
    if line < 0 or line in found.along or axes[line].iter_type != IterVar.DataPar:
        return None
    pair = axes[line : line + 2]
    reads = [
        place
        for place in range(len(found.shared.indices) - 1)
        if _are(found.shared.indices[place:], found.shared.source.shape[place:], pair, analyzer)
    ]
    writes = _are(block.body.indices[line:], block.body.buffer.shape[line:], pair, analyzer)
    return line if len(reads) == 1 and writes else None


def _are(indices: Any, extents: Any, axes: Sequence[Any], analyzer: Analyzer) -> bool:
    """Return whether the first indices are these axes, each over a whole dimension."""
    return all(
        analyzer.can_prove_equal(index, axis.var) and int(extent) == int(axis.dom.extent)
        for index, extent, axis in zip(indices, extents, axes, strict=False)
    )


def _factors(block: Any) -> Sequence[Any]:
    """Return the two loads of floats whose products a block sums; empty if it sums none."""
    product = added_product(block)
    loads = () if product is None else (product.a, product.b)
    if not loads or not all(isinstance(load, TensorLoad) for load in loads):
        return ()
    types = {str(block.body.buffer.dtype), *(str(load.source.dtype) for load in loads)}
    return loads if types in ({"float32"}, {"float64"}) else ()


def _axes_of(load: Any, axes: Sequence[Any]) -> set[int]:
    """Return the positions of the axes that index a load."""
    return {n for n, axis in enumerate(axes) if mentions(list(load.indices), axis.var)}


BUSY_STEPS = 8.0
"""Multiply-adds that keep two units with a latency of four cycles busy."""

OVERHEAD = 0.8
"""Overhead of a step, in multiply-adds; see ``share_of_peak``."""

MOST_ROWS, MOST_VECTORS = 14, 3

SPACES = 2
"""Maximum number of offered tile lengths."""

CLOSE = 0.9
"""Minimum speed of an offered tile, relative to the fastest tile."""


def share_of_peak(rows: int, tall: int, vectors: int) -> float:
    """Estimate the share of a core's peak arithmetic that tiled products reach.

    The longest of a tile's multiply-adds, its loads and the units' pipelines determines a step's
    time. Estimates are within 0.05 of measured shares of handwritten tiles. ``rows``: the total
    number of rows. ``tall``, ``vectors``: the rows and vectors of a tile.
    """
    full, rest = divmod(rows, tall)
    steps = full * _step(tall, vectors) + (_step(rest, vectors) if rest else 0.0)
    return rows * vectors / steps


def _step(tall: int, vectors: int) -> float:
    return max(float(tall * vectors), float(tall + vectors), BUSY_STEPS) + OVERHEAD


def fits(tall: int, vectors: int, registers: int) -> bool:
    """Return whether registers hold a tile's sums, its vectors and one row.

    AVX2's 16 registers do not hold eight or more rows of one vector: LLVM loads the rows of two
    steps ahead. AVX-512 loads a row's number as part of the multiplication.
    """
    is_ahead = vectors == 1 and tall >= BUSY_STEPS and registers <= 16
    return tall * vectors + vectors + 1 <= registers and not is_ahead


def offered_tiles(rows: int, vectors: int, registers: int) -> dict[int, list[int]]:
    """Return the tiles to choose from: the numbers of rows, ascending, by number of vectors.

    ``rows``, ``vectors``: the extents of the product. ``registers``: the number of registers of the
    core.
    """
    shares: dict[int, dict[int, float]] = {}
    for length in (n for n in range(1, MOST_VECTORS + 1) if vectors % n == 0):
        talls = [n for n in range(1, min(rows, MOST_ROWS) + 1) if fits(n, length, registers)]
        shares[length] = {tall: share_of_peak(rows, tall, length) for tall in talls}
    best = sorted(shares, key=lambda length: -max(shares[length].values()))[:SPACES]
    fastest = max((max(shares[length].values()) for length in best), default=0.0)
    offered = {
        length: [tall for tall, share in shares[length].items() if share >= CLOSE * fastest]
        for length in best
    }
    return {length: talls for length, talls in offered.items() if talls}
