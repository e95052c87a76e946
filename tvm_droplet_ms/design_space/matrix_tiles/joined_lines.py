# SPDX-License-Identifier: Apache-2.0
"""Tiles with rows of several lines.

A line of a map of seven by seven fills less than half of a tile. If the rows of all lines are
equally far apart in memory, as in ``halves.flat_convolution``, they are joined into one axis. Only
the consumer of the sums has lines again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import IndexMap

from .find_matrix import FoundMatrix


def join_lines(schedule: Schedule, block: SBlockRV, found: FoundMatrix) -> FoundMatrix:
    """Join the lines and rows of a block that ``is_joinable``; return its matrix product."""
    assert found.line is not None
    axes = list(schedule.get(block).iter_vars)
    rows, line = int(axes[found.row].dom.extent), found.line
    index_map = _joining(line, rows, len(axes), str(axes[0].var.ty))
    schedule.transform_block_layout(block, index_map)

    def moved(axis: int) -> int:
        return axis - (axis > line)

    dot = replace(found.dot, lane=moved(found.dot.lane), step=moved(found.dot.step))
    reads = sorted({moved(axis) for axis in found.reads})
    return replace(found, dot=dot, row=line, line=None, reads=reads, is_joinable=False)


def join_sums(schedule: Schedule, block: SBlockRV, copy: SBlockRV, rows: int) -> Callable[[], None]:
    """Join the lines of the sums in tiles, and of the block that copies them to memory.

    ``rows``: the rows of a line. Returns a function that joins the lines in memory too. Call it
    when the consumer has its place: TVM cannot tell which rows of a joined axis a consumer reads.
    """
    written = schedule.get(block).writes[0].source
    rank, index = len(written.shape), str(schedule.get(copy).iter_vars[0].var.ty)
    index_map = _joining(rank - 3, rows, rank, index)
    schedule.transform_layout(block, ("write", 0), index_map)
    schedule.transform_block_layout(copy, index_map)
    return lambda: schedule.transform_layout(copy, ("write", 0), index_map)


def _joining(line: int, rows: int, rank: int, index: str) -> IndexMap:
    """Return the map of indices that joins an axis with the axis after it."""

    def joined(*at: Any) -> list[Any]:
        return [*at[:line], at[line] * rows + at[line + 1], *at[line + 2 :]]

    return IndexMap.from_func(joined, ndim=rank, index_dtype=index)
