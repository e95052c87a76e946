# SPDX-License-Identifier: Apache-2.0
"""A MetaSchedule schedule rule for dot products on x86 CPUs.

Tensor intrinsics accumulate a tile of rows and vectors in registers. The consumers are computed
tile by tile. Unpacked weights are packed first: constant weights once, when a model is compiled,
and other weights in each run.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule, ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IndexMap, IterVar

from ..register_tiles.tiling import (
    FINISHED,
    FREE,
    inlined_consumers,
    is_marked,
    is_plain,
    perfect_tile,
)
from .dot_intrinsics import SMALL_WEIGHTS, WORD, imported_code, register_dots
from .dot_units import DotUnit
from .find_dot import FoundDot, find_dot

FEWEST_USES = 16
"""Weights with fewer uses are not packed in each run."""

_SPARE_REGISTERS = 4
_MOST_SPACES = 3
_MOST_UNROLLED = 8
IMPORTED = "pragma_import_llvm"

_PACKED_ONCE = "meta_schedule.layout_rewrite_preproc"


@derived_object
class DotProducts(PyScheduleRule):
    """Schedules blocks that sum products of bytes or of bfloat16, and leaves all others alone.

    ``units``: the CPU's dot-product units. ``is_parallel``: whether several threads share a kernel.
    """

    def __init__(self, units: Sequence[DotUnit], is_parallel: bool) -> None:
        """Create the rule for a CPU."""
        super().__init__()
        register_dots()
        self._units = units
        self._is_parallel = is_parallel

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def apply(self, sch: Schedule, block: SBlockRV) -> list[Schedule]:
        """Return the design spaces: one for each tile length in vectors."""
        node = sch.get(block)
        unit, found = self._find(sch, node)
        if unit is None or found is None or not is_plain(sch, block):
            return [sch]
        if found.packed_axes is not None:
            is_constant = is_marked(sch, found.weights, FREE)
            if not is_constant and found.uses < FEWEST_USES:
                return [sch]
            pack_weights(sch, block, found, is_constant)
        if unit.widens:
            found = _widen(sch, block, found)
        last = inlined_consumers(sch, block)
        rows = _extent_of_rows(node, found)
        registers = unit.registers - _SPARE_REGISTERS
        spaces = []
        for length in tile_lengths(rows, found.vectors, registers):
            space = sch.copy()
            _tile(space, block, found, last, length, registers // length, self._is_parallel)
            spaces.append(space)
        return spaces

    def _find(self, schedule: Schedule, node: Any) -> tuple[DotUnit | None, FoundDot | None]:
        """Find the dot products of a block, and the unit that computes them."""
        finds = ((unit, find_dot(node, unit)) for unit in self._units)
        unit, found = next((find for find in finds if find[1] is not None), (None, None))
        if unit is None or found is None or not unit.widens:
            return unit, found
        is_small = is_marked(schedule, found.weights, SMALL_WEIGHTS)
        small = find_dot(node, unit.of_small) if is_small else None
        return (unit, found) if small is None else (unit.of_small, small)

    def clone(self) -> ScheduleRule:
        """Return a rule for the same CPU."""
        return DotProducts(self._units, self._is_parallel)


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


def pack_weights(schedule: Schedule, block: SBlockRV, found: FoundDot, is_constant: bool) -> None:
    """Copy the weights so that the numbers of a vector are contiguous."""
    assert found.packed_axes is not None
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
        return
    schedule.transform_block_layout(copy, index_map)
    if lane > step:
        # LLVM turns a loop over lanes with strided stores into shuffles.
        inner = schedule.get_loops(copy)[-1]
        schedule.unroll(inner)
        schedule.annotate(inner, FINISHED, 1)


def _widen(schedule: Schedule, block: SBlockRV, found: FoundDot) -> FoundDot:
    """Copy the shared bytes into words, and return the dot product that reads the copy.

    The copy is made once, for this block only; other readers keep reading the bytes. It pays off
    for few outputs too: 196x1024 by 8 outputs takes 50 us with the copy and 60 us without (AVX2).
    Returns `found` if TVM cannot make the copy, for example of a buffer that two blocks write.
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


def _extent_of_rows(node: Any, found: FoundDot) -> int:
    axis = _row_axis(node, found)
    return 1 if axis is None else int(node.iter_vars[axis].dom.extent)


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
    sums: list[LoopRV] = []
    unrolled: list[LoopRV] = []
    tile: list[LoopRV] = []
    for number, axis in enumerate(node.iter_vars):
        if number == found.step:
            continue
        if axis.iter_type != IterVar.DataPar:
            sums.append(loops[number])
        elif number == found.lane:
            vectors, inner = schedule.split(loops[number], [None, length])
            parts = perfect_tile(schedule, vectors, 2)
            tile.append(inner)
        elif number == row_axis:
            *parts, inner = perfect_tile(schedule, loops[number], 3, most_rows)
            tile.insert(0, inner)
        else:
            parts = perfect_tile(schedule, loops[number], 2)
        if axis.iter_type == IterVar.DataPar:
            outer.append(parts[0])
            middle.append(parts[1])
    steps, inner = perfect_tile(schedule, loops[found.step], 2, _MOST_UNROLLED)
    sums.append(steps)
    unrolled.append(inner)
    schedule.reorder(*outer, *middle, *sums, *unrolled, *tile)
    for loop in (*unrolled, *tile):
        schedule.unroll(loop)
    first = outer[0]
    if is_parallel:
        first = schedule.fuse(*outer)
        schedule.parallel(first)
    for loop in (first, tile[-1]):
        schedule.annotate(loop, FINISHED, 1)
    code = imported_code(found.dot)
    if code is not None:
        schedule.annotate(first, IMPORTED, code)
    if last is not None:
        schedule.reverse_compute_at(last, middle[-1], preserve_unit_loops=True)
    zeros = schedule.decompose_reduction(dot, sums[0])
    schedule.vectorize(schedule.get_loops(schedule.get_child_blocks(zeros)[0])[-1])
    schedule.tensorize(dot, found.dot.name)
