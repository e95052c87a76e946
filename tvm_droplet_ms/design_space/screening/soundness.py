# SPDX-License-Identifier: Apache-2.0
"""Finds reductions that a schedule wrongly repeats, which TVM's postprocessors do not check."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_walk

from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import detect_linear_equation
from tvm.tirx import For, IntImm, IterVar, PrimFunc, Var

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
    for function in mod.functions.values():
        if isinstance(function, PrimFunc):
            for realize, loops in realizations(function.body):
                if _is_update(realize.block) and _is_repeated(realize, loops):
                    return str(realize.block.name_hint)
    return None


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
    used: list[Any] = []
    for value in realize.iter_values:
        structural_walk(value, (Var, used.append))
    written = realize.block.writes[0].source
    inner = []
    for loop in loops:
        is_one = isinstance(loop.extent, IntImm) and int(loop.extent) == 1
        if is_one or _is_initialized_in(loop, written):
            continue
        if not any(loop.loop_var.same_as(variable) for variable in used):
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
    blocks: list[Any] = []
    structural_walk(loop.body, (SBlock, blocks.append))
    return any(
        any(write.source.same_as(buffer) for write in block.writes)
        and not any(read.source.same_as(buffer) for read in block.reads)
        for block in blocks
    )
