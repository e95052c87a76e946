# SPDX-License-Identifier: Apache-2.0
"""Vectors that ``VerifyGPUCode`` refuses: wider than a load, or with strided elements.

A copy into or out of shared memory is vectorized by the number of lanes that its trace samples
(``RewriteCooperativeFetch``). A strided index becomes a vector of 32-bit integers, which has the
same byte limit as a vector of elements (``CheckBufferIndicesVectorizable``): eight strided elements
are refused, and eight contiguous ones are not. Copies with padding at the end are accepted too: a
condition that differs between lanes prevents vectorization (``vectorize_loop.cc``).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tvm_ffi.structural import structural_walk

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim.expr import Cast

from ..block_tree import integer
from ..extents import Node, Tape

MOST_BYTES = 16
"""The bytes of the widest vector, as in ``verify_gpu_code.cc``."""

_INDEX_BYTES = 4
"""The bytes of an index: ``NarrowDataType`` narrows it to 32 bits."""

_WIDEST_SCALAR = 4
"""The maximum size in bytes of an element that is vectorized."""

_MOST_BASES = 64
"""The maximum number of positions along an axis at which a vector's stride is checked."""


def refused_lanes(
    tape: Tape, block: Any, extents: Sequence[Node], lanes: Mapping[int, Node]
) -> Node:
    """A node that is positive where the vectors of a copy are refused.

    ``block``: the block that copies one element. ``extents``: the iterations of its axes, the
    outermost first. ``lanes``: for each number of lanes, a node that is 1 where that number is
    chosen and 0 elsewhere.
    """
    itemsize = _itemsize(block)
    if itemsize > _WIDEST_SCALAR:
        return tape.constant(0)
    total = tape.product(extents)
    return tape.sum(
        [
            tape.product([chosen, _divides(tape, total, count), _refused(tape, block, extents, n)])
            for count, chosen in lanes.items()
            for n in [count if count * itemsize <= MOST_BYTES else -count]
            if count > 1
        ]
    )


def _refused(tape: Tape, block: Any, extents: Sequence[Node], lanes: int) -> Node:
    """A node that is positive where vectors are refused; negative ``lanes`` always are."""
    if lanes < 0:
        return tape.constant(1)
    if lanes * _INDEX_BYTES <= MOST_BYTES:
        return tape.constant(0)
    refused, is_inner = [], tape.constant(1)
    for axis, extent in zip(reversed(block.iter_vars), reversed(extents), strict=True):
        # The vector runs along the innermost axis with more than one iteration.
        if _is_strided(block, axis, lanes):
            refused.append(tape.multiply(is_inner, _divides(tape, extent, lanes)))
        is_inner = tape.multiply(is_inner, tape.equal(extent, tape.constant(1)))
    return tape.sum(refused)


def _divides(tape: Tape, extent: Node, lanes: int) -> Node:
    return tape.equal(tape.modulo(extent, lanes), tape.constant(0))


def _accesses(block: Any) -> list[Any]:
    """The loads and the store of a block."""
    found: list[Any] = []
    structural_walk(block.body, ((TensorLoad, tirx.BufferStore), found.append))
    return found


def _buffer(access: Any) -> Any:
    return access.buffer if isinstance(access, tirx.BufferStore) else access.source


def _itemsize(block: Any) -> int:
    casts: list[Any] = []
    structural_walk(block.body, (Cast, casts.append))
    sizes = [int(_buffer(access).dtype.itemsize) for access in _accesses(block)]
    return max([1, *sizes, *(_bytes(cast) for cast in casts)])


def _bytes(value: Any) -> int:
    return int(value.ty.dtype.itemsize)


def _is_strided(block: Any, axis: Any, lanes: int) -> bool:
    """True if some access has a constant stride other than 0 and 1 along an axis."""
    length = integer(axis.dom.extent)
    bases = range(0, length - lanes + 1, lanes)
    # Padding is at the end of an axis.
    if _has_uneven_condition(block, axis.var, bases[-_MOST_BASES:], lanes):
        return False
    for access in _accesses(block):
        scope = str(_buffer(access).scope())
        if scope.startswith("shared"):
            continue  # The rows of a copy are contiguous.
        strides = {_stride(access, axis.var, base, lanes) for base in bases[:_MOST_BASES]}
        if len(strides) == 1 and not strides & {None, 0, 1}:
            return True
    return False


def _has_uneven_condition(block: Any, variable: Any, bases: range, lanes: int) -> bool:
    """True if some comparison holds for only some lanes of a vector."""
    comparisons: list[Any] = []
    structural_walk(block.body, (_COMPARISONS, comparisons.append))
    return any(
        len({_evaluate(comparison, variable, base + lane) for lane in range(lanes)}) > 1
        for comparison in comparisons
        for base in bases
    )


def _stride(access: Any, variable: Any, base: int, lanes: int) -> int | None:
    """The elements from one lane to the next; None if the number is not constant."""
    places = []
    for value in range(base, base + lanes):
        place = 0
        shape = _buffer(access).shape
        for index, length in zip(access.indices, shape, strict=True):
            at = _evaluate(index, variable, value)
            if at is None:
                return None
            place = place * integer(length) + at
        places.append(place)
    steps = {after - before for before, after in pairwise(places)}
    return steps.pop() if len(steps) == 1 else None


def _evaluate(expr: Any, variable: Any, value: int) -> int | None:
    """The value of an index for one variable's value, with all other variables 0."""
    if isinstance(expr, tirx.IntImm):
        return int(expr)
    if isinstance(expr, tirx.Var):
        return value if expr.same_as(variable) else 0
    if isinstance(expr, tirx.Cast):
        return _evaluate(expr.value, variable, value)
    operation = _OPERATIONS.get(type(expr).__name__)
    if operation is None:
        return None
    first, second = (_evaluate(part, variable, value) for part in (expr.a, expr.b))
    if first is None or second is None:
        return None
    return int(operation(first, second))


_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)

_OPERATIONS: Mapping[str, Any] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b if b else 0,
    "FloorMod": lambda a, b: a % b if b else 0,
    "Min": min,
    "Max": max,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}
