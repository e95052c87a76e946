# SPDX-License-Identifier: Apache-2.0
"""Keeps the layouts of weights that TVM would repack incorrectly.

``RewriteLayout`` (``rewrite_layout.cc``) packs a weight by the index of one of its reads. If that
read does not cover the whole weight, the index is not a permutation. In an LSTM cell, TVM packed a
bias of 1,024 values into 256.

TVM treats a block that computes a tensor from a single weight as a copy of the weight, and packs
the weight by the index with which the new tensor is read. A transposed convolution reorders the
axes of its kernel. The index was a permutation of the reordered shape, but not of the weight's
shape.

If an expression reads a weight several times, each index reads a part, however often the block
runs.

A table that is looked up by one index has no loop along its rows. TVM packed it by the loop over
its columns, as if it had one row, so the kernel read wrong rows.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from tvm_ffi import structural_equal

import tvm
from tvm.ir.expr import TensorLoad
from tvm.tirx import IntImm, IterVar, PrimFunc

from ...design_space.trees import mentions, nodes_in
from .kernel_pass import blocks_in, kernel_pass

FREE = "layout_free_buffers"
"""The attribute with the parameter indices of the weights (``AttachAttrLayoutFreeBuffers``)."""


def keep_layouts() -> tvm.transform.Pass:
    """Make a pass that keeps the layouts of weights if an expression may read only a part of them.

    The pass applies to kernels after ``AttachAttrLayoutFreeBuffers``.
    """

    def keep(function: PrimFunc) -> PrimFunc | None:
        free = [int(number) for number in (function.attrs or {}).get(FREE, ())]
        if not free:
            return None
        blocks = blocks_in(function.body)
        reads = [nodes_in(each.body, TensorLoad) if each.iter_vars else [] for each in blocks]
        kept = [n for n in free if _is_read_whole(function.params[n], blocks, reads)]
        if kept == free:
            return None
        changed = function.without_attr(FREE)
        return changed.with_attr(FREE, kept) if kept else changed

    return kernel_pass("KeepLayouts", keep)


def _is_read_whole(weight: Any, blocks: Sequence[Any], reads: Sequence[Sequence[Any]]) -> bool:
    """Return whether each block that the weight is inlined into reads the whole weight."""
    inlined = {weight}
    for block, loads in zip(blocks, reads, strict=True):
        for load in loads:
            if load.source not in inlined:
                continue
            if _is_one_looked_up(load, block):
                return False
            if not _is_one_index([each for each in loads if each.source.same_as(load.source)]):
                return False
            # TVM treats a block that reads one tensor and has no reduction as a copy.
            is_copy = block.init is None and len(block.reads) == len(block.writes) == 1
            if is_copy and _shape(block.writes[0]) != _shape(block.reads[0]):
                return False
            iterations = _product(axis.dom.extent for axis in block.iter_vars)
            size = _product(load.source.shape)
            if iterations is None or size is None:
                return True  # TVM does not schedule kernels with symbolic shapes.
            # A weight may be broadcast. TVM does not pack weights with several lookup indices.
            is_free_to_repeat = load.source.same_as(weight)
            if iterations < size and not (is_free_to_repeat and _lookups(load)):
                return False
            if iterations > size and not is_free_to_repeat:
                return False
            if all(axis.iter_type == IterVar.DataPar for axis in block.iter_vars):
                inlined.add(block.writes[0].source)
    return True


def _is_one_index(loads: Sequence[Any]) -> bool:
    """Return whether loads of a tensor share one index, not constant along extents above 1."""
    first = loads[0]
    return all(structural_equal(each.indices, first.indices) for each in loads[1:]) and not any(
        isinstance(index, IntImm) and not _is_one(extent)
        for index, extent in zip(first.indices, first.source.shape, strict=True)
    )


def _shape(region: Any) -> list[Any]:
    return [int(n) if isinstance(n, IntImm) else n for n in region.source.shape]


def _product(extents: Iterable[Any]) -> int | None:
    """Return the product of extents; None if one is symbolic."""
    known = list(extents)
    return prod(map(int, known)) if all(isinstance(each, IntImm) for each in known) else None


def _lookups(load: Any) -> list[Any]:
    """Return the memory loads inside the indices of a load."""
    return nodes_in(list(load.indices), TensorLoad)


def _is_one_looked_up(load: Any, block: Any) -> bool:
    """Return whether an index of a load is itself loaded from a place that no loop changes."""
    loops = [axis.var for axis in block.iter_vars if not _is_one(axis.dom.extent)]
    return not all(any(mentions(each, loop) for loop in loops) for each in _lookups(load))


def _is_one(extent: Any) -> bool:
    return isinstance(extent, IntImm) and int(extent) == 1
