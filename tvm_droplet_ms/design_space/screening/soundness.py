# SPDX-License-Identifier: Apache-2.0
"""Finds blocks that a schedule computes wrongly, which TVM's postprocessors do not check.

A reduction may be repeated. A block may not write all elements that others read: TVM's rules move a
consumer into the loops of its producer (``reverse_compute_at``), and give it the producer's
extents. If the consumer pads, its padding is never written (``docs/upstream/padding.md``).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tvm import tirx
from tvm.ir import IRModule, Range
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx import For, IntImm, IterVar, PrimFunc, Var

from ..trees import mentions, nodes_in

MOST_ITERATIONS = 4096
"""Maximum number of iterations to enumerate."""

_OPERATORS: dict[type, Callable[..., Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.remainder,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}


def repeated_sum(mod: IRModule) -> str | None:
    """Find a reduction that adds to its own earlier result.

    A producer may be recomputed in each iteration of a loop. This happens if it does not depend on
    the loop, or if the iterations need overlapping parts of it. ``RewriteReductionBlock``
    (``rewrite_reduction_block.cc``) moves its initialization out of that loop, so the second
    iteration adds to the sum of the first. ``mod``: a scheduled workload after its postprocessors.
    Returns the name of the block; None if there is none.
    """
    return first_block(
        mod, lambda realize, loops: _is_update(realize.block) and _is_repeated(realize, loops)
    )


def first_block(mod: IRModule, has_fault: Callable[[Any, list[Any]], bool]) -> str | None:
    """Return the name of the first block with a fault; ``has_fault``: see ``realizations``."""
    functions = (each for each in mod.functions.values() if isinstance(each, PrimFunc))
    found = (
        str(realize.block.name_hint)
        for function in functions
        for realize, loops in realizations(function.body)
        if has_fault(realize, loops)
    )
    return next(found, None)


def realizations(body: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the blocks of a statement, each with the loops between it and its parent block."""
    found: list[tuple[Any, list[Any]]] = []
    waiting: list[tuple[Any, list[Any]]] = [(body, [])]
    while waiting:
        statement, loops = waiting.pop()
        if isinstance(statement, For):
            waiting.append((statement.body, [*loops, statement]))
        elif isinstance(statement, SBlockRealize):
            found.append((statement, loops))
            waiting.append((statement.block.body, []))
        else:
            for name in ("seq", "body", "then_case", "else_case"):
                inner = getattr(statement, name, None)
                if name == "seq":
                    waiting += [(each, loops) for each in inner or ()]
                elif inner is not None:
                    waiting.append((inner, loops))
    yield from found


def _is_update(block: Any) -> bool:
    """Return whether a block is the update part of a decomposed reduction."""
    if block.init is not None or len(block.writes) == 0:
        return False
    if not any(int(axis.iter_type) == IterVar.CommReduce for axis in block.iter_vars):
        return False
    written = block.writes[0].source
    return any(read.source.same_as(written) for read in block.reads)


def _is_repeated(realize: Any, loops: list[Any]) -> bool:
    used = list(realize.iter_values)
    written = realize.block.writes[0].source
    inner = []
    for loop in loops:
        is_one = isinstance(loop.extent, IntImm) and int(loop.extent) == 1
        if is_one or _is_initialized_in(loop, written):
            continue
        if not mentions(used, loop.loop_var):
            return True
        inner.append(loop)
    axes = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return _recurs(realize, inner) or any(
        _overlaps(value, inner) for axis, value in axes if int(axis.iter_type) == IterVar.DataPar
    )


def _recurs(realize: Any, loops: list[Any]) -> bool:
    """Return whether several iterations of the loops map to the same values of a block's axes.

    Returns False if this is unknown: for unsupported operators or too many iterations.
    """
    if not loops or not all(isinstance(loop.extent, IntImm) for loop in loops):
        return False
    extents = [int(loop.extent) for loop in loops]
    if math.prod(extents) > MOST_ITERATIONS:
        return False
    numbers = np.indices(extents).reshape(len(extents), -1)
    iterations = {loop.loop_var: each for loop, each in zip(loops, numbers, strict=True)}
    try:
        rows = [numbers_of(value, iterations) for value in realize.iter_values]
        is_run = numbers_of(realize.predicate, iterations).astype(bool)
    # A symbolic extent may be a divisor, and variables count as 0.
    except (KeyError, AttributeError, FloatingPointError):
        return False
    values = np.stack([np.broadcast_to(row, numbers.shape[1:]) for row in rows])
    values = values[:, np.broadcast_to(is_run, numbers.shape[1:])]
    return bool(np.unique(values, axis=1).shape[1] < values.shape[1])


def numbers_of(value: Any, iterations: Mapping[Any, np.ndarray]) -> np.ndarray:
    """Evaluate an expression in all iterations, with 0 for other variables."""
    if isinstance(value, Var):
        return iterations.get(value, np.array(0))
    if isinstance(value, IntImm):
        return np.array(int(value))
    with np.errstate(divide="raise"):
        operands = (numbers_of(each, iterations) for each in (value.a, value.b))
        return np.asarray(_OPERATORS[type(value)](*operands))


def _overlaps(value: Any, loops: list[Any]) -> bool:
    """Return whether a linear function of loops repeats a value in their iterations."""
    linear = detect_linear_equation(value, [loop.loop_var for loop in loops])
    # ``_recurs`` handles values that are not linear, such as indices of a fused loop.
    if len(linear) == 0 or not all(isinstance(loop.extent, IntImm) for loop in loops):
        return False
    factors = [abs(int(each)) if isinstance(each, IntImm) else 0 for each in linear[: len(loops)]]
    reach = 0
    for factor, loop in sorted(zip(factors, loops, strict=True), key=lambda pair: pair[0]):
        if 0 < factor <= reach:
            return True
        reach += factor * (int(loop.extent) - 1)
    return False


def _is_initialized_in(loop: Any, buffer: Any) -> bool:
    """Return whether a block in a loop writes a buffer without reading it."""
    return any(
        any(write.source.same_as(buffer) for write in block.writes)
        and not any(read.source.same_as(buffer) for read in block.reads)
        for block in nodes_in(loop.body, SBlock)
    )


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
