# SPDX-License-Identifier: Apache-2.0
"""A MetaSchedule schedule rule for dot products on x86 CPUs.

Tensor intrinsics accumulate a tile of rows and vectors in registers. The consumers are computed
tile by tile. Unpacked weights are packed first: constant weights once, when a model is compiled,
and other weights in each run.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IndexMap, IterVar

from ..register_tiles.tiling import (
    FINISHED,
    FREE,
    BlockRule,
    finish_outer,
    inlined_consumers,
    is_marked,
    is_plain,
    perfect_tile,
)
from .dot_intrinsics import SMALL_WEIGHTS, WORD, imported_code, register_dots
from .find_dot import DotUnit, FoundDot, find_dot

FEWEST_USES = 16
"""Weights with fewer uses are not packed in each run."""

_SPARE_REGISTERS = 4
_MOST_SPACES = 3
_MOST_UNROLLED = 8
IMPORTED = "pragma_import_llvm"

_PACKED_ONCE = "meta_schedule.layout_rewrite_preproc"


def DotProducts(units: Sequence[DotUnit], is_parallel: bool) -> ScheduleRule:
    """Make the rule for blocks that sum products of bytes or of bfloat16.

    It leaves all other blocks alone. A block gets a design space for each tile length in vectors.
    ``units``: the CPU's dot-product units. ``is_parallel``: whether several threads share a kernel.
    """
    register_dots()

    def apply(sch: Schedule, block: SBlockRV) -> list[Schedule]:
        node = sch.get(block)
        unit, found = _find(units, sch, node)
        if unit is None or found is None or not is_plain(sch, block):
            return [sch]
        if not pack_if_worthwhile(sch, block, found):
            return [sch]
        if unit.widens:
            found = _widen(sch, block, found)
        last = inlined_consumers(sch, block)
        axis = _row_axis(node, found)
        rows = 1 if axis is None else int(node.iter_vars[axis].dom.extent)
        registers = unit.registers - _SPARE_REGISTERS
        spaces = []
        for length in tile_lengths(rows, found.vectors, registers):
            space = sch.copy()
            _tile(space, block, found, last, length, registers // length, is_parallel)
            spaces.append(space)
        return spaces

    return BlockRule(apply)


def _find(
    units: Sequence[DotUnit], schedule: Schedule, node: Any
) -> tuple[DotUnit | None, FoundDot | None]:
    """Find the dot products of a block, and the unit that computes them."""
    finds = ((unit, find_dot(node, unit)) for unit in units)
    unit, found = next((find for find in finds if find[1] is not None), (None, None))
    if unit is None or found is None or not unit.widens:
        return unit, found
    is_small = is_marked(schedule, found.weights, SMALL_WEIGHTS)
    small = find_dot(node, unit.of_small) if is_small else None
    return (unit, found) if small is None else (unit.of_small, small)


def tile_lengths(rows: int, vectors: int, registers: int) -> list[int]:
    """Return the tile lengths, in vectors, with the fewest loads per instruction.

    A tile has one load for each row and each vector, and an accumulator for each pair of both.
    ``rows``: the total number of rows. ``vectors``: the number of vectors that share these rows.
    ``registers``: the maximum number of accumulators.
    """

    def loads(length: int) -> float:
        most = max(tall for tall in range(1, registers // length + 1) if rows % tall == 0)
        return 1 / length + 1 / most

    lengths = [length for length in range(1, min(vectors, registers) + 1) if vectors % length == 0]
    return sorted(lengths, key=loads)[:_MOST_SPACES]


def pack_if_worthwhile(schedule: Schedule, block: SBlockRV, found: FoundDot) -> bool:
    """Copy the weights so that the numbers of a vector are contiguous, unless they are.

    Returns False, and changes nothing, for weights with too few uses.
    """
    if found.packed_axes is None:
        return True
    is_constant = is_marked(schedule, found.weights, FREE)
    if not is_constant and found.uses < FEWEST_USES:
        return False
    lane, step = found.packed_axes
    lanes, depth = found.dot.lanes, found.dot.depth

    def order(*indices: Any) -> list[Any]:
        others = [index for axis, index in enumerate(indices) if axis not in (lane, step)]
        outer = [indices[lane] // lanes, *others, indices[step] // depth]
        return [*outer, indices[lane] % lanes, indices[step] % depth]

    dtype = str(schedule.get(block).iter_vars[0].var.ty)
    index_map = IndexMap.from_func(order, ndim=len(found.weights.shape), index_dtype=dtype)
    reads = [region.source for region in schedule.get(block).reads]
    place = next(n for n, source in enumerate(reads) if source.same_as(found.weights))
    copy = schedule.cache_read(block, place, "global")
    schedule.transform_layout(copy, ("write", 0), index_map)
    if is_constant:
        # The pass that removes these copies expects them in the order of the source.
        schedule.annotate(copy, _PACKED_ONCE, True)
        return True
    schedule.transform_block_layout(copy, index_map)
    if lane > step:
        # LLVM turns a loop over lanes with strided stores into shuffles.
        inner = schedule.get_loops(copy)[-1]
        schedule.unroll(inner)
        schedule.annotate(inner, FINISHED, 1)
    return True


def _widen(schedule: Schedule, block: SBlockRV, found: FoundDot) -> FoundDot:
    """Copy the shared bytes into words, and return the dot product that reads the copy.

    The copy is made once, for this block only; other readers keep reading the bytes. Returns
    `found` if TVM cannot make the copy, for example of a buffer that two blocks write.
    """
    reads = [region.source for region in schedule.get(block).reads]
    place = next(n for n, source in enumerate(reads) if source.same_as(found.shared))
    try:
        copy = schedule.cache_read(block, place, "global", consumer_blocks=[block])
    except ScheduleError:
        return found
    schedule.unsafe_set_dtype(copy, 0, WORD)
    return replace(found, dot=replace(found.dot, is_wide=True))


def _row_axis(node: Any, found: FoundDot) -> int | None:
    """Return the row axis of a tile: the last data-parallel axis with more than one element."""
    rows = [
        number
        for number, axis in enumerate(node.iter_vars)
        if number != found.lane and axis.iter_type == IterVar.DataPar and int(axis.dom.extent) > 1
    ]
    return rows[-1] if rows else None


def _tile(
    schedule: Schedule,
    block: SBlockRV,
    found: FoundDot,
    last: SBlockRV | None,
    length: int,
    most_rows: int,
    is_parallel: bool,
) -> None:
    node = schedule.get(block)
    row_axis = _row_axis(node, found)
    loops = list(schedule.get_loops(block))
    loops[found.lane], lanes = schedule.split(loops[found.lane], [None, found.dot.lanes])
    loops[found.step], products = schedule.split(loops[found.step], [None, found.dot.depth])
    schedule.reorder(*loops, lanes, products)
    dot = schedule.blockize(lanes)
    outer: list[LoopRV] = []
    middle: list[LoopRV] = []
    tile: list[LoopRV] = []
    for number, axis in enumerate(node.iter_vars):
        if axis.iter_type != IterVar.DataPar:
            continue
        if number == found.lane:
            vectors, inner = schedule.split(loops[number], [None, length])
            parts = perfect_tile(schedule, vectors, 2)
            tile.append(inner)
        elif number == row_axis:
            *parts, inner = perfect_tile(schedule, loops[number], 3, most_rows)
            tile.insert(0, inner)
        else:
            parts = perfect_tile(schedule, loops[number], 2)
        outer.append(parts[0])
        middle.append(parts[1])
    steps, unrolled = perfect_tile(schedule, loops[found.step], 2, _MOST_UNROLLED)
    sums = [
        loops[number]
        for number, axis in enumerate(node.iter_vars)
        if axis.iter_type != IterVar.DataPar and number != found.step
    ]
    sums.append(steps)
    schedule.reorder(*outer, *middle, *sums, unrolled, *tile)
    for loop in (unrolled, *tile):
        schedule.unroll(loop)
    first = finish_outer(schedule, outer, is_parallel)
    schedule.annotate(tile[-1], FINISHED, 1)
    code = imported_code(found.dot)
    if code is not None:
        schedule.annotate(first, IMPORTED, code)
    if last is not None:
        schedule.reverse_compute_at(last, middle[-1], preserve_unit_loops=True)
    zeros = schedule.decompose_reduction(dot, sums[0])
    schedule.vectorize(schedule.get_loops(schedule.get_child_blocks(zeros)[0])[-1])
    schedule.tensorize(dot, found.dot.name)
