# SPDX-License-Identifier: Apache-2.0
"""Loops whose last iteration, which is smaller, becomes a loop of its own."""

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
from tvm.ir import Range
from tvm.ir.expr import Expr
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm.tirx import For, PrimFunc
from tvm.tirx.transform import ForceNarrowIndexToInt32, prim_func_pass

from ..trees import nodes_in

PARTITIONED = "pragma_loop_partition_hint"
"""Annotation of a loop whose last iteration ``LoopPartition`` splits off."""

_WIDE, _LEAST, _LARGEST = "int64", -(2**31), 2**31 - 1


def NarrowPartitions() -> tvm.transform.Pass:
    """Make a pass that gives kernels with partitioned loops indices of 32 bits.

    Relax's kernels have indices of 64 bits. TVM narrows them before ``LoopPartition``
    (``s_tir/pipeline.py``). That makes a new variable for the loop, but not in its annotation, so
    that the loop is not partitioned, and its register tiles take twice as long. The pass applies to
    scheduled modules, and leaves other kernels unchanged: those with 64-bit numbers, and those
    with indices, conditions or numbers computed from them that may not fit in 32 bits.
    """
    return prim_func_pass(_narrowed, opt_level=0, name="NarrowPartitions")


def _narrowed(function: PrimFunc, _mod: Any, _context: Any) -> PrimFunc:
    loops = nodes_in(function.body, For)
    if not any(
        PARTITIONED in loop.annotations and str(loop.loop_var.ty.dtype) == _WIDE for loop in loops
    ):
        return function
    blocks = nodes_in(function.body, SBlock)
    regions = [region for block in blocks for region in (*block.reads, *block.writes)]
    buffers = [region.source for region in regions]
    buffers += [buffer for block in blocks for buffer in block.alloc_buffers]
    if any(str(buffer.dtype) == _WIDE or _size(buffer) > _LARGEST for buffer in buffers):
        return function
    if any(_is_wide(parameter) for parameter in function.params):
        return function
    if not _fits(function.body, loops, blocks):
        return function
    return ForceNarrowIndexToInt32()(tvm.IRModule({"main": function}))["main"]


def _fits(body: Any, loops: Sequence[For], blocks: Sequence[SBlock]) -> bool:
    """Return whether each 64-bit number that a kernel computes is certain to fit in 32 bits.

    TVM's pass does not ask, and raises an error for large constants and for mixed types.
    """
    analyzer = Analyzer()
    for loop in loops:
        analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
    for block in blocks:
        for axis in block.iter_vars:
            analyzer.bind(axis.var, axis.dom)
    for each in nodes_in(body, Expr):
        if _is_wide(each):
            bound = analyzer.const_int_bound(each)
            if int(bound.min_value) < _LEAST or int(bound.max_value) > _LARGEST:
                return False
    return True


def _is_wide(value: Any) -> bool:
    return str(getattr(getattr(value, "ty", None), "dtype", "")) == _WIDE


def _size(buffer: Any) -> int:
    """The number of elements; too many if an extent is not known."""
    try:
        return prod(int(extent) for extent in buffer.shape)
    except TypeError:
        return _LARGEST + 1
