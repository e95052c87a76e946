# SPDX-License-Identifier: Apache-2.0
"""Design spaces that vectorize channels: for pools, and for kernels with per-channel operands.

TOPI annotates its pools with names of schedule rules, such as ``meta_schedule.pool_max``
(``include/tvm/topi/nn/pooling.h``). MetaSchedule looks for a global function of that name for each
of the target's keys (``src/s_tir/meta_schedule/schedule_rule/apply_custom_rule.cc``). TVM 0.27
registers no such function: it warns, and schedules a pool like any other reduction.

In an elementwise kernel, MetaSchedule fuses all loops and vectorizes the last 64 iterations
(``rewrite_parallel_vectorize_unroll.cc``). If 64 does not divide the channels, a vector spans two
pixels, and a per-channel operand, such as that of a batch norm, must be gathered.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import tvm_ffi

import tvm
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IntImm, IterVar, PrimFunc

from ...design_space.register_tiles.tiling import sample
from .kernel_pass import has_root_block, kernel_pass

RULE_NAMES = ("pool_max", "pool_avg", "adaptive_pool_max", "adaptive_pool_avg")
"""The rules that TOPI's pools request, without the prefix ``meta_schedule.``."""

_ANNOTATION = "schedule_rule"
_MAX_VECTOR = 64
_VECTORS = (8, 16, 32, 64)


def register_pool_rules() -> None:
    """Register design spaces for pools under the names that TVM requests.

    Call it before a task's design space is generated. Further calls leave registered rules
    unchanged. TVM looks a rule up by the target's keys: every CPU target has the key ``cpu``, and
    every GPU target has the key ``gpu``.

    On a CPU, a pool whose channels are innermost (NHWC) gets one design space: a tile is one vector
    of channels, the window is reduced for one vector at a time, and padding is computed where it is
    read. Other pools, and all pools on a GPU, keep TVM's design space, without TVM's warning.
    """
    cpu_rules = dict(zip(RULE_NAMES, (_tile_maximum, _tile_average) * 2, strict=True))
    for name, rule in cpu_rules.items():
        register_rule(f"meta_schedule.{name}", rule)
        register_rule(f"meta_schedule.{name}", _keep_default, "gpu")


def register_rule(
    name: str, rule: Callable[[Schedule, SBlockRV], list[Schedule]], key: str = "cpu"
) -> None:
    """Register a schedule rule, unless a rule with this name is already registered."""
    full_name = f"s_tir.meta_schedule.{key}.{name}"
    if tvm_ffi.get_global_func(full_name, allow_missing=True) is None:
        tvm_ffi.register_global_func(full_name, rule)


def _keep_default(schedule: Schedule, block: SBlockRV) -> list[Schedule]:
    """Keep the default design space: other rules apply only to blocks without the annotation."""
    schedule.unannotate(block, _ANNOTATION)
    return [schedule]


def _tile_maximum(schedule: Schedule, block: SBlockRV) -> list[Schedule]:
    """The rule for a pool that consists of one block: the reduction."""
    if not _has_innermost_channels(schedule, block):
        return _keep_default(schedule, block)
    _tile_reduction(schedule, block)
    return [schedule]


def _tile_average(schedule: Schedule, block: SBlockRV) -> list[Schedule]:
    """The rule for the division in an average pool, whose producer is the reduction."""
    producers = schedule.get_producers(block)
    if len(producers) != 1 or not _has_innermost_channels(schedule, producers[0]):
        return _keep_default(schedule, block)
    reduction = producers[0]
    # The annotation keeps the rules for general reductions away from the tiled loops.
    schedule.annotate(reduction, _ANNOTATION, "None")
    tile = _tile_reduction(schedule, reduction)
    if schedule.get_consumers(block):
        return _keep_default(schedule, block)  # TVM inlines the division into the consumer.
    schedule.reverse_compute_at(block, tile, preserve_unit_loops=True)
    return [schedule]


def _has_innermost_channels(schedule: Schedule, reduction: SBlockRV) -> bool:
    """Return whether the input's last axis is not pooled and all extents are constant."""
    block = schedule.get(reduction)
    if not all(isinstance(axis.dom.extent, IntImm) for axis in block.iter_vars):
        return False  # An adaptive pool with windows of different sizes.
    spatial = [axis for axis in block.iter_vars if axis.iter_type == IterVar.DataPar]
    return bool(spatial) and all(
        read.region[-1].min.same_as(spatial[-1].var) for read in block.reads
    )


def _tile_reduction(schedule: Schedule, reduction: SBlockRV) -> LoopRV:
    """Move a vector of channels inside the window's loops.

    Returns the loop over the vectors, right outside the window's loops.
    """
    for producer in schedule.get_producers(reduction):
        if schedule.get(producer).name_hint.startswith("pad_temp"):
            schedule.compute_inline(producer)
    axes = schedule.get(reduction).iter_vars
    loops = list(zip(axes, schedule.get_loops(reduction), strict=True))
    spatial = [loop for axis, loop in loops if axis.iter_type == IterVar.DataPar]
    window = [loop for axis, loop in loops if axis.iter_type != IterVar.DataPar]
    outer, vector = split_vector(schedule, spatial[-1])
    schedule.reorder(*spatial[:-1], outer, *window, vector)
    return outer


def split_vector(schedule: Schedule, channels: LoopRV, extent: int | None = None) -> list[LoopRV]:
    """Split a loop over channels into vectors of sampled extent; see ``vector_extents``.

    ``extent``: the number that a vector's extent must divide; by default the number of channels.
    """
    extents = vector_extents(extent or int(schedule.get(channels).extent))
    return list(schedule.split(channels, [None, sample(schedule, extents)]))


def vectorize_channels(schedule: Schedule, block: SBlockRV, extent: int | None = None) -> None:
    """Vectorize a part of the channels (the last axis) of an elementwise block."""
    *_, inner, channels = schedule.get_loops(block)
    outer, vector = split_vector(schedule, channels, extent)
    # A loop between them keeps MetaSchedule from fusing them into a vector across pixels or parts.
    schedule.reorder(outer, inner, vector)
    schedule.vectorize(vector)


def elementwise_chain(schedule: Schedule, block: SBlockRV) -> list[SBlockRV] | None:
    """Return the chain of consumers of a block.

    Returns None unless each consumer is the only reader of its producer, is elementwise, and has
    the same extents as the other consumers.
    """
    chain: list[SBlockRV] = []
    while consumers := schedule.get_consumers(chain[-1] if chain else block):
        axes = schedule.get(consumers[0]).iter_vars
        if len(consumers) > 1 or any(axis.iter_type != IterVar.DataPar for axis in axes):
            return None
        if chain and extents_of(schedule, consumers[0]) != extents_of(schedule, chain[0]):
            return None
        chain.append(consumers[0])
    return chain


def extents_of(schedule: Schedule, block: SBlockRV) -> list[int]:
    """Return the extents of a block's axes."""
    return [int(axis.dom.extent) for axis in schedule.get(block).iter_vars]


def vector_extents(channels: int) -> list[int]:
    """Return the candidate extents of a vector loop, which divide the channels.

    These are the powers of two from 8 to 64, if any divides the channels: LLVM splits a vector of,
    for example, 24 elements into pieces, which made an average pool ten times slower. Otherwise
    they are all divisors up to 64. ``channels``: the number of channels. The result is ascending
    and not empty.
    """
    vectors = [extent for extent in _VECTORS if channels % extent == 0]
    return vectors or [
        extent for extent in range(1, min(channels, _MAX_VECTOR) + 1) if channels % extent == 0
    ]


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
