# SPDX-License-Identifier: Apache-2.0
"""Recognizes kernels that compute a 3x3 convolution, directly or with Winograd's algorithm.

Shapes alone are ambiguous: a product of 3 batches of 3 heads, a dilated convolution and a direct
convolution may have the same shapes. So the blocks of the unscheduled kernel are examined.
"""

from collections.abc import Sequence
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.sym import Analyzer
from tvm.tirx import IterVar

from ..kernel_pass import blocks_in
from .strips import RULE
from .winograd_choice import TILES, Implementation, Layer
from .winograd_matrices import KERNEL_SIZE


def implementation(task: ExtractedTask) -> Implementation | None:
    """Return the convolution of a task; see ``implementation_of``."""
    return implementation_of(task.dispatched[0])


def implementation_of(mod: IRModule) -> Implementation | None:
    """Return the convolution that a workload computes.

    ``mod``: the unscheduled workload: one function ``main`` of constant shapes. Returns None unless
    it has a 3x3 convolution in NHWC with stride 1, dilation 1 and one group.
    """
    blocks = blocks_in(mod["main"].body)
    return _winograd(blocks) or _direct(blocks)


def _direct(blocks: Sequence[Any]) -> Implementation | None:
    for block in blocks:
        if _is_convolution(block):
            data, _ = block.reads
            return _described(blocks, data.source, block.writes[0].source, None)
    return None


def _is_convolution(block: Any) -> bool:
    """Return whether a block is a direct 3x3 convolution.

    It sums ``data[n, y + i, x + j, c] * weights[i, j, c, k]`` to ``[n, y, x, k]``, with 3 rows i
    and 3 columns j.
    """
    kinds = [int(axis.iter_type) for axis in block.iter_vars]
    if kinds != 4 * [IterVar.DataPar] + 3 * [IterVar.CommReduce]:
        return False
    if len(block.reads) != 2 or len(block.writes) != 1:
        return False
    n, y, x, k, i, j, c = (axis.var for axis in block.iter_vars)
    if [int(axis.dom.extent) for axis in block.iter_vars[4:6]] != [KERNEL_SIZE] * 2:
        return False
    analyzer = Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    expected = ((n, y + i, x + j, c), (i, j, c, k), (n, y, x, k))
    return all(
        _is_at(region, indices, analyzer)
        for region, indices in zip((*block.reads, *block.writes), expected, strict=True)
    )


def _is_at(region: Any, indices: Sequence[Any], analyzer: Analyzer) -> bool:
    """Return whether a region is the single element at the given indices."""
    return len(region.region) == len(indices) and all(
        analyzer.can_prove_equal(found.min, index) and analyzer.can_prove_equal(found.extent, 1)
        for found, index in zip(region.region, indices, strict=True)
    )


def _winograd(blocks: Sequence[Any]) -> Implementation | None:
    """Find a Winograd convolution by the schedule rule annotation of its output transform."""
    marked = {str(block.annotations.get("schedule_rule")): block for block in blocks}
    inverse = marked.get(RULE)
    if inverse is None:
        return None
    tile = int(inverse.iter_vars[0].dom.extent)
    outputs = [
        block.writes[0].source
        for block in blocks
        if any(read.source.same_as(inverse.writes[0].source) for read in block.reads)
    ]
    block = inverse
    # Go through the inverse columns, the products, the input transform and its columns.
    for _ in range(4):
        block = _writer(blocks, block.reads[0].source)
        if block is None:
            return None
    if tile not in TILES or len(outputs) != 1:
        return None
    return _described(blocks, block.reads[0].source, outputs[0], tile)


def _described(
    blocks: Sequence[Any], data: Any, output: Any, tile: int | None
) -> Implementation | None:
    """Return the layer from `data`, which may be padded, to `output`."""
    pad = _writer(blocks, data)
    if pad is not None:
        if len(pad.reads) != 1:
            return None
        data = pad.reads[0].source
    return Implementation(Layer(*_shape(data), *_shape(output)[1:]), tile)


def _writer(blocks: Sequence[Any], buffer: Any) -> Any:
    """Return the block that writes a buffer; None for an argument."""
    for block in blocks:
        if any(write.source.same_as(buffer) for write in block.writes):
            return block
    return None


def _shape(buffer: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in buffer.ty.shape)
