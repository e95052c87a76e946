# SPDX-License-Identifier: Apache-2.0
"""A MetaSchedule schedule rule for register tiles.

TVM's tiles must divide the loop extents. Tiles that fill 16 registers do not divide 14, 49 or 197
rows. Here the last tile along the rows may be smaller. ``LoopPartition`` splits it into a separate
loop without conditions.
"""

from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule, ScheduleRule
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import IndexMap, IterVar

from ..entry_function import entry_function
from .find_product import find_product, outer_rows
from .tiles import offered_tiles
from .tiling import FINISHED, FREE, inlined_consumers, is_marked, is_plain, is_written, perfect_tile

PARTITIONED = "pragma_loop_partition_hint"
"""Annotation of a loop whose last iteration ``LoopPartition`` splits off."""

_MOST_UNROLLED = 8


@derived_object
class RegisterTiles(PyScheduleRule):
    """Adds design spaces to TVM's for blocks that sum float products.

    ``size``: the bytes of a vector register. ``registers``: the number of vector registers.
    ``is_parallel``: whether several threads share a kernel.
    """

    def __init__(self, size: int, registers: int, is_parallel: bool) -> None:
        """Create the rule for a CPU."""
        super().__init__()
        self._size = size
        self._registers = registers
        self._is_parallel = is_parallel

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def apply(self, sch: Schedule, block: SBlockRV) -> list[Schedule]:
        """Return the unchanged schedule, for TVM's rules, and one schedule for each tile length."""
        node = sch.get(block)
        found = find_product(node)
        if found is None or not is_plain(sch, block):
            return [sch]
        if not found.is_in_order and not is_marked(sch, found.weights, FREE):
            return [sch]
        rows, columns = (int(node.iter_vars[n].dom.extent) for n in (found.row, found.lane))
        tiled = sch.copy()
        last = inlined_consumers(tiled, block)
        lanes = 8 * self._size // node.writes[0].source.dtype.bits
        if columns % lanes or (last is None and sch.get_consumers(block)):
            return [sch]
        line = outer_rows(node, found)
        if line is not None and last is not None and self._can_be_one(tiled, node, last):
            rows *= int(node.iter_vars[line].dom.extent)
            _flatten(tiled, block, last, line)
        spaces = [sch]
        tiles = offered_tiles(rows, columns // lanes, self._registers)
        for length, talls in tiles.items():
            space = tiled.copy()
            _tile(space, block, last, lanes, length, talls, self._is_parallel)
            spaces.append(space)
        return spaces

    def _can_be_one(self, schedule: Schedule, node: Any, last: SBlockRV) -> bool:
        """Return whether two axes of a product and its consumer can be fused.

        Several threads need the outer axis. The sums must not be an output of the kernel, because
        its shape is fixed. The consumer must write as many elements as the product.
        """
        shapes = [
            [int(extent) for extent in each.writes[0].source.shape]
            for each in (node, schedule.get(last))
        ]
        is_result = is_written(node, list(entry_function(schedule.mod).params))
        is_like = shapes[0] == shapes[1] and is_plain(schedule, last)
        return is_like and not is_result and not self._is_parallel

    def clone(self) -> ScheduleRule:
        """Return a rule for the same CPU."""
        return RegisterTiles(self._size, self._registers, self._is_parallel)


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
    chances = [1.0 / len(talls)] * len(talls)
    tall = schedule.sample_categorical(talls, chances)
    tiles, rows = schedule.split(loops[found.row], [None, tall])
    steps, unrolled = perfect_tile(schedule, loops[found.step], 2, _MOST_UNROLLED)
    others = [n for n in range(len(axes)) if n not in (found.lane, found.row, found.step)]
    around = [loops[n] for n in others if axes[n].iter_type == IterVar.DataPar]
    sums = [loops[n] for n in others if axes[n].iter_type != IterVar.DataPar]
    schedule.reorder(outer, *around, tiles, panel, *sums, steps, unrolled, rows, vectors, inner)
    schedule.annotate(tiles, PARTITIONED, True)
    for loop in (unrolled, rows, vectors):
        schedule.unroll(loop)
    schedule.vectorize(inner)
    first = outer
    if is_parallel:
        first = schedule.fuse(outer, *around)
        schedule.parallel(first)
    for loop in (first, vectors):
        schedule.annotate(loop, FINISHED, 1)
    if last is None:
        return
    schedule.reverse_compute_at(last, panel, preserve_unit_loops=True)
    *_, rows, columns = schedule.get_loops(last)
    vectors, inner = schedule.split(columns, [None, lanes])
    for loop in (rows, vectors):
        schedule.unroll(loop)
    schedule.vectorize(inner)
    schedule.annotate(vectors, FINISHED, 1)
