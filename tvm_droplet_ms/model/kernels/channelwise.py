# SPDX-License-Identifier: Apache-2.0
"""Elementwise kernels with an operand for each channel, such as a batch norm that is not folded.

MetaSchedule fuses all loops of an elementwise kernel and vectorizes the last 64 iterations
(``rewrite_parallel_vectorize_unroll.cc``). Where 64 does not divide the channels, a vector spans
two pixels, so that the operand of its channels has to be gathered: 2.0 ns an element were seen on
an AVX-512 CPU instead of 0.45.
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

    For kernels after ``FuseTIR``. It marks those that are elementwise, have an operand smaller than
    the result, and channels, the last axis, that a multiple of 8 divides and 64 does not.
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
    # Among them those that must not be inlined, as the rule does with everything.
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
    """The extents of a block without reductions; empty for any other."""
    axes: Any = schedule.get(block).iter_vars
    if any(axis.iter_type != IterVar.DataPar for axis in axes):
        return ()
    return tuple(int(axis.dom.extent) for axis in axes)


def schedule_channelwise(schedule: Schedule, block: SBlockRV) -> list[Schedule]:
    """Compute everything in the last block, and vectorize some of its channels."""
    schedule.unannotate(block, "schedule_rule")
    for producer in schedule.get_child_blocks(schedule.get_sblock("root")):
        if not schedule.get(producer).same_as(schedule.get(block)):
            schedule.compute_inline(producer)
    vectorize_channels(schedule, block)
    return [schedule]
