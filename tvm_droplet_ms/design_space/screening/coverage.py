# SPDX-License-Identifier: Apache-2.0
"""Finds blocks that do not write all elements that other blocks read.

TVM's rules move a consumer into the loops of its producer (``reverse_compute_at``), and give it the
producer's extents. If the consumer pads, its padding is never written
(``docs/upstream/padding.md``).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tvm.ir import IRModule, Range
from tvm.sym import Analyzer
from tvm.tirx import IntImm, PrimFunc

from .soundness import realizations

Box = list[tuple[int, int]]
"""The first and the last index of a region along each axis of a buffer."""


def unwritten(mod: IRModule) -> str | None:
    """Find a block that writes less than others read from it, or less than its axes cover.

    ``mod``: a scheduled workload. Symbolic extents and indices are not checked. Returns the name of
    the block; None if there is none.
    """
    functions = (each for each in mod.functions.values() if isinstance(each, PrimFunc))
    return next((name for each in functions for name in _unwritten(each)), None)


def _unwritten(function: Any) -> Iterator[str]:
    blocks = list(realizations(function.body))
    if len(blocks) < 3:  # The root and a single block: nothing was moved.
        return
    run = Analyzer()
    names: dict[Any, str] = {}
    written: dict[Any, Box] = {}
    meant: dict[Any, Box] = {}
    read: dict[Any, Box] = {}
    local: set[Any] = set()
    for realize, loops in blocks:
        block = realize.block
        local.update(block.alloc_buffers)
        for loop in loops:
            run.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        whole = Analyzer()
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            whole.bind(axis.var, axis.dom)
            if not isinstance(axis.dom.extent, IntImm):
                return
            first, last = _clipped(_bounds(run, value), axis.dom)
            run.bind(axis.var, Range.from_min_extent(first, last - first + 1))
        if not block.iter_vars:
            continue
        for region in block.writes:
            names.setdefault(region.source, str(block.name_hint))
            _add(written, region, run)
            _add(meant, region, whole)
        for region in block.reads:
            _add(read, region, run)
    for buffer, name in names.items():
        wanted = read.get(buffer) if buffer in local else meant.get(buffer)
        found = written.get(buffer)
        if wanted is not None and found is not None and not _covers(found, wanted, buffer.shape):
            yield name


def _bounds(analyzer: Analyzer, value: Any) -> tuple[int, int]:
    if isinstance(value, IntImm):
        return int(value), int(value)
    found = analyzer.const_int_bound(value)
    return int(found.min_value), int(found.max_value)


def _clipped(bounds: tuple[int, int], dom: Any) -> tuple[int, int]:
    """Clip bounds to an axis; a predicate excludes everything outside."""
    least = int(dom.min)
    return max(bounds[0], least), min(bounds[1], least + int(dom.extent) - 1)


def _add(boxes: dict[Any, Box], region: Any, analyzer: Analyzer) -> None:
    """Widen the box of a buffer by a region."""
    box = []
    for extent in region.region:
        first, last = _bounds(analyzer, extent.min)
        box.append((first, last + _bounds(analyzer, extent.extent)[1] - 1))
    before = boxes.get(region.source, box)
    boxes[region.source] = [
        (min(a, c), max(b, d)) for (a, b), (c, d) in zip(before, box, strict=True)
    ]


def _covers(found: Box, wanted: Box, shape: Sequence[Any]) -> bool:
    return all(
        not isinstance(extent, IntImm)
        or (first <= max(low, 0) and last >= min(high, int(extent) - 1))
        for (first, last), (low, high), extent in zip(found, wanted, shape, strict=True)
    )
