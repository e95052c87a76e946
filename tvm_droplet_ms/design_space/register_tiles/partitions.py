# SPDX-License-Identifier: Apache-2.0
"""Loops whose last iteration, which is smaller, becomes a loop of its own."""

from math import prod
from typing import Any

import tvm
from tvm.s_tir import SBlock
from tvm.tirx import For, PrimFunc
from tvm.tirx.transform import ForceNarrowIndexToInt32, prim_func_pass

from ..trees import nodes_in

PARTITIONED = "pragma_loop_partition_hint"
"""Annotation of a loop whose last iteration ``LoopPartition`` splits off."""

_WIDE, _LARGEST = "int64", 2**31 - 1


def NarrowPartitions() -> tvm.transform.Pass:
    """Make a pass that gives kernels with partitioned loops indices of 32 bits.

    Relax's kernels have indices of 64 bits. TVM narrows them before ``LoopPartition``
    (``s_tir/pipeline.py``). That makes a new variable for the loop, but not in its annotation, so
    that the loop is not partitioned, and its register tiles take twice as long. The pass applies to
    scheduled modules, and leaves other kernels unchanged, such as those with 64-bit numbers.
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
    return ForceNarrowIndexToInt32()(tvm.IRModule({"main": function}))["main"]


def _size(buffer: Any) -> int:
    """The number of elements; too many if an extent is not known."""
    try:
        return prod(int(extent) for extent in buffer.shape)
    except TypeError:
        return _LARGEST + 1
