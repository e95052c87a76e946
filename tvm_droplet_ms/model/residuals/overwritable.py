# SPDX-License-Identifier: Apache-2.0
"""Kernels whose result may be written over an operand.

The kernel reads each element of the operand once, for the element of the result at the same place,
and writes each element of the result once.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_map, structural_walk

from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.tirx import BufferStore, IntImm, PrimFunc, Var

from ...design_space.screening.soundness import numbers_of, realizations

MOST_ELEMENTS = 1 << 22
"""Maximum number of elements of a result, because the place of each is checked."""


def overwritable(kernel: PrimFunc) -> list[int]:
    """Return the operands that a kernel may overwrite with its result, the last parameter.

    ``kernel``: scheduled or not. One block must write the result, each element once. Only this
    block may read the operand, at the place that it writes. Returns positions among the parameters,
    and an empty list for kernels of any other form.
    """
    if not len(kernel.params):
        return []
    *operands, result = kernel.params
    alike = [number for number, each in enumerate(operands) if _is_alike(each, result)]
    found = _writer(kernel, result) if alike else None
    if found is None or not _writes_once(*found, _extents(result)):
        return []
    block = found[0].block
    return [number for number in alike if _is_read_there(kernel, block, operands[number])]


def overwriting(kernel: PrimFunc, operand: int) -> PrimFunc:
    """Make a kernel that writes over an operand, not to its last parameter.

    ``operand``: a position that ``overwritable`` returns. The caller passes the operand in both
    places.
    """
    source, result = kernel.params[operand], kernel.params[-1]

    def other(variable: Var) -> Var:
        return source if variable.same_as(result) else variable

    return kernel.with_body(structural_map(kernel.body, (Var, other)))


def _extents(buffer: Any) -> list[int] | None:
    """Return the extents of a buffer, or None if one is symbolic or there are too many elements."""
    extents = list(buffer.shape)
    if not all(isinstance(extent, IntImm) for extent in extents):
        return None
    numbers = [int(extent) for extent in extents]
    return numbers if 0 < math.prod(numbers) <= MOST_ELEMENTS else None


def _is_alike(operand: Any, result: Any) -> bool:
    """True if two parameters are buffers of the same shape and type."""
    shapes = [getattr(each, "shape", None) for each in (operand, result)]
    if any(shape is None for shape in shapes) or str(operand.dtype) != str(result.dtype):
        return False
    return _extents(result) is not None and _extents(operand) == _extents(result)


def _writer(kernel: PrimFunc, result: Any) -> tuple[Any, list[Any]] | None:
    """Return the block whose body is the only store to a result, and the loops around it."""
    root = kernel.body
    if not isinstance(root, SBlockRealize) or len(root.block.match_buffers):
        return None
    found = [
        (realize, loops)
        for realize, loops in realizations(root.block.body)
        if len(realize.block.iter_vars) and _mentions(realize.block.body, result)
    ]
    if len(found) != 1 or _mentions(root.block.body, result) != _mentions(found[0][0], result):
        return None
    block = found[0][0].block
    store = block.body
    is_store = isinstance(store, BufferStore) and store.buffer.same_as(result)
    if not is_store or block.init is not None or _mentions(store, result) != 1:
        return None
    return found[0]


def _mentions(node: Any, variable: Var) -> int:
    found: list[Any] = []
    structural_walk(node, (Var, found.append))
    return sum(each.same_as(variable) for each in found)


def _writes_once(realize: Any, loops: Sequence[Any], extents: Sequence[int] | None) -> bool:
    """True if a block stores each element of a buffer once."""
    numbers = [each for loop in loops for each in (loop.min, loop.extent)]
    if extents is None or not all(isinstance(each, IntImm) for each in numbers):
        return False
    counts = [int(loop.extent) for loop in loops]
    elements = math.prod(extents)
    block = realize.block
    if math.prod(counts) > 2 * elements or any(int(loop.min) for loop in loops):
        return False
    mesh = np.ix_(*(np.arange(count) for count in counts))
    values = {loop.loop_var: each for loop, each in zip(loops, mesh, strict=True)}
    try:
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            values[axis.var] = _numbers(value, values)
        places = [_numbers(index, values) for index in block.body.indices]
        is_run = _numbers(realize.predicate, values).astype(bool)
    # The index is loaded from a buffer, or has an operator that `numbers_of` cannot evaluate.
    except (KeyError, AttributeError, FloatingPointError):
        return False
    place = np.zeros((), dtype="int64")
    for number, extent in zip(places, extents, strict=True):
        place = place * extent + number
    place, is_run = (np.broadcast_to(each, counts) for each in (place, is_run))
    if place[is_run].min(initial=0) < 0:
        return False
    written = np.bincount(place[is_run].ravel(), minlength=elements)
    return written.size == elements and bool((written == 1).all())


def _numbers(value: Any, values: Mapping[Var, np.ndarray]) -> np.ndarray:
    """Evaluate an expression in all iterations. Raises ``KeyError`` for any other variable."""
    found: list[Any] = []
    structural_walk(value, (Var, found.append))
    if not all(each in values for each in found):
        raise KeyError("a variable from outside")
    return numbers_of(value, values)


def _is_read_there(kernel: PrimFunc, block: Any, operand: Any) -> bool:
    """True if only a given block reads an operand, at the place that it writes."""
    loads: list[Any] = []
    structural_walk(block.body, (TensorLoad, loads.append))
    own = [load for load in loads if load.source.same_as(operand)]
    inside = _mentions(block, operand)
    return (
        len(own) > 0
        and _mentions(block.body, operand) == len(own)
        and _mentions(kernel.body, operand) == inside
        and all(structural_equal(load.indices, block.body.indices) for load in own)
    )
