# SPDX-License-Identifier: Apache-2.0
"""Weights whose layout TVM must not choose, because it would compute something else.

``RewriteLayout`` (``rewrite_layout.cc``) packs a weight by the index of one of the places where an
expression reads it. Where that place is not all of the weight, the index is no permutation: the
kernel of an LSTM's cell, an ``add`` and four slices inlined into one expression, packed a bias of
1,024 values into 256, ``packed[i % 256] = bias[i]``, and its outputs were wrong.

A block that makes another tensor of one weight alone passes for its copy there, and the weight is
packed by the index that the other one is read by. Where a transposed convolution turns the axes of
its kernel, that was a permutation of the turned shape and none of the weight's: of 2 output
channels, the second one's weights were lost.

Where an expression reads a weight several times, as the two columns of the grid of a GridSample or
the four corners of a RoiAlign's boxes, each index reads a part, however often the block runs.

A table that is looked up by one index has no loop along its rows. TVM packed it by the loop over
its columns as if there was one row, and other rows were read.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_walk

import tvm
from tvm.ir.expr import TensorLoad
from tvm.tirx import IntImm, IterVar, PrimFunc, Var

from .kernel_pass import blocks_in, kernel_pass

FREE = "layout_free_buffers"
"""The attribute with the numbers of the weights (``AttachAttrLayoutFreeBuffers``)."""


def keep_layouts() -> tvm.transform.Pass:
    """Make a pass that keeps the layouts of weights of which an expression may read a part.

    For kernels after ``AttachAttrLayoutFreeBuffers``.
    """

    def keep(function: PrimFunc) -> PrimFunc | None:
        free = [int(number) for number in (function.attrs or {}).get(FREE, ())]
        if not free:
            return None
        blocks = blocks_in(function.body)
        reads = [_loads(block) if block.iter_vars else [] for block in blocks]
        kept = [n for n in free if _is_read_whole(function.params[n], blocks, reads)]
        if kept == free:
            return None
        changed = function.without_attr(FREE)
        return changed.with_attr(FREE, kept) if kept else changed

    return kernel_pass("KeepLayouts", keep)


def _loads(block: Any) -> list[Any]:
    loads: list[Any] = []
    structural_walk(block.body, (TensorLoad, loads.append))
    return loads


def _is_read_whole(weight: Any, blocks: Sequence[Any], reads: Sequence[Sequence[Any]]) -> bool:
    """True if each block that the weight is inlined into reads all of it."""
    inlined = {weight}
    for block, loads in zip(blocks, reads, strict=True):
        for load in loads:
            if load.source not in inlined:
                continue
            if _is_one_looked_up(load, block):
                return False
            if not _is_one_index([each for each in loads if each.source.same_as(load.source)]):
                return False
            if _is_taken_for_copy(block) and _shape(block.writes[0]) != _shape(block.reads[0]):
                return False
            iterations = _product(axis.dom.extent for axis in block.iter_vars)
            size = _product(load.source.shape)
            if iterations is None or size is None:
                return True  # TVM schedules no kernel of symbolic shapes.
            # A weight may be broadcast. TVM packs none that is looked up by several indices.
            is_free_to_repeat = load.source.same_as(weight)
            if iterations < size and not (is_free_to_repeat and _lookups(load)):
                return False
            if iterations > size and not is_free_to_repeat:
                return False
            if all(axis.iter_type == IterVar.DataPar for axis in block.iter_vars):
                inlined.add(block.writes[0].source)
    return True


def _is_one_index(loads: Sequence[Any]) -> bool:
    """True if some loads of one tensor have the same index, fixed along no extent above 1."""
    first = loads[0]
    return all(structural_equal(each.indices, first.indices) for each in loads[1:]) and not any(
        isinstance(index, IntImm) and not _is_one(extent)
        for index, extent in zip(first.indices, first.source.shape, strict=True)
    )


def _is_taken_for_copy(block: Any) -> bool:
    """True if TVM sees a copy in a block, because it reads one tensor and sums nothing."""
    return block.init is None and len(block.reads) == len(block.writes) == 1


def _shape(region: Any) -> list[Any]:
    return [int(n) if isinstance(n, IntImm) else n for n in region.source.shape]


def _product(extents: Iterable[Any]) -> int | None:
    """The product of some extents; None where one is symbolic."""
    known = list(extents)
    return prod(map(int, known)) if all(isinstance(each, IntImm) for each in known) else None


def _lookups(load: Any) -> list[Any]:
    """The reads of memory that the indices of a load consist of."""
    found: list[Any] = []
    for index in load.indices:
        structural_walk(index, (TensorLoad, found.append))
    return found


def _is_one_looked_up(load: Any, block: Any) -> bool:
    """True if an index of a load is read from memory, from a place that no loop changes."""
    loops = [axis.var for axis in block.iter_vars if not _is_one(axis.dom.extent)]
    for lookup in _lookups(load):
        variables: list[Any] = []
        structural_walk(lookup, (Var, variables.append))
        if not any(each.same_as(loop) for each in variables for loop in loops):
            return True
    return False


def _is_one(extent: Any) -> bool:
    return isinstance(extent, IntImm) and int(extent) == 1
