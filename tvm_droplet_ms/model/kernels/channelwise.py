# SPDX-License-Identifier: Apache-2.0
"""Elementwise kernels with a per-channel operand, such as a batch norm that is not folded.

MetaSchedule fuses all loops of an elementwise kernel and vectorizes the last 64 iterations
(``rewrite_parallel_vectorize_unroll.cc``). If 64 does not divide the channels, a vector spans two
pixels, and the per-channel operand must be gathered: an element took 2.0 ns instead of 0.45 ns on
an AVX-512 CPU.
"""

from math import prod
from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import IntImm, IterVar, PrimFunc

from .kernel_pass import has_root_block, kernel_pass
from .pool_rules import vectorize_channels

CHANNELWISE_RULE = "tvm_droplet_ms.channelwise"
_TVMS_VECTOR = 64
_LEAST_VECTOR = 8


def mark_channelwise() -> tvm.transform.Pass:
    """Make a pass that marks the kernels for the schedule rule.

    The pass applies to kernels after ``FuseTIR``. It marks elementwise kernels with an operand
    smaller than the result, if 8 divides the channels (the last axis) and 64 does not.
    """

    return kernel_pass("MarkChannelwise", _marked)


def _marked(function: PrimFunc) -> PrimFunc | None:
    if not has_root_block(function) or not _has_small_operand(function):
        return None
    schedule = Schedule(IRModule({"main": function}), debug_mask="none")
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    shapes = {_spatial_shape(schedule, block) for block in blocks}
    shape = shapes.pop()
    if shapes or len(shape) < 2 or shape[-1] % _TVMS_VECTOR == 0 or shape[-1] % _LEAST_VECTOR:
        return None
    # This includes blocks that must not be inlined, because the rule inlines all blocks.
    if any("schedule_rule" in schedule.get(block).annotations for block in blocks):
        return None
    schedule.annotate(blocks[-1], "schedule_rule", CHANNELWISE_RULE)
    return schedule.mod["main"].with_attrs(dict(function.attrs or {}))


def _has_small_operand(function: PrimFunc) -> bool:
    shapes = [getattr(param, "shape", ()) for param in function.params]
    if len(shapes) < 3 or not all(shapes):
        return False
    if not all(isinstance(extent, IntImm) for shape in shapes for extent in shape):
        return False  # A symbolic shape, which TVM does not schedule.
    sizes = [prod(map(int, shape)) for shape in shapes]
    return any(1 < size < sizes[-1] for size in sizes[:-1])


def _spatial_shape(schedule: Schedule, block: SBlockRV) -> tuple[int, ...]:
    """Return the extents of a block without reductions; empty for other blocks."""
    axes: Any = schedule.get(block).iter_vars
    if any(axis.iter_type != IterVar.DataPar for axis in axes):
        return ()
    return tuple(int(axis.dom.extent) for axis in axes)


def schedule_channelwise(schedule: Schedule, block: SBlockRV) -> list[Schedule]:
    """Inline everything into the last block, and vectorize some of its channels."""
    schedule.unannotate(block, "schedule_rule")
    for producer in schedule.get_child_blocks(schedule.get_sblock("root")):
        if not schedule.get(producer).same_as(schedule.get(block)):
            schedule.compute_inline(producer)
    vectorize_channels(schedule, block)
    return [schedule]
