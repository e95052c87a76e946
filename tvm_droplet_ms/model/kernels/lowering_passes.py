# SPDX-License-Identifier: Apache-2.0
"""The common list of passes from a graph to its kernels, and the kernels that replace TVM's.

``tune``, the pipeline "droplet_tuning" and the graph search all use this list, so they share
databases.
"""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule
from tvm.relax import transform
from tvm.target import Target
from tvm.tirx import PrimFunc

from ..bindings import Bindings, Expr, operator_name
from ..scheduled import in_block
from ..shared_constants import share_constants
from .attention.attention_compute import ATTENTION_RULE, TILED_RULE
from .attention.attention_schedule import schedule_attention, schedule_attention_in_tiles
from .attention.few_rows import FEW_ROWS_RULE, schedule_few_rows
from .attention.fused_attention import fuse_attention
from .block_names import name_blocks
from .channel_vectors import (
    CHANNELWISE_RULE,
    mark_channelwise,
    register_pool_rules,
    register_rule,
    schedule_channelwise,
)
from .copies import CONCATENATION_RULE, legalize_concatenation, legalize_pad, schedule_concatenation
from .fixed_layouts import keep_layouts
from .grouped_convolution import PACKED_RULE, legalize_convolution, read_shuffled, schedule_packed
from .halves import legalize_cast, legalize_matmul, legalize_max_pool
from .inlining import limit_inlining
from .kernel_pass import has_root_block, kernel_pass
from .stored_terms import drop_fusion_stops, store_terms
from .vector_math import REDUCTIONS, legalize_reduction, vector_math
from .weights.packed_products import NARROW_RULE, schedule_narrow
from .weights.weight_marks import mark_reused_weights, mark_small_weights
from .winograd.winograd_kernel import register_winograd_rules


def lowering_passes(
    *, is_plain: bool = False, packs_weights: bool = True
) -> list[tvm.transform.Pass]:
    """Make the passes that turn the operators of a graph into kernels, and fuse them.

    The passes apply to a prepared graph (``model.prepare``), within the target. ``is_plain``:
    whether to use only TVM's own kernels, for non-CPU targets and for comparisons.
    ``packs_weights``: whether schedules may change the layout of weights, which must then be
    packed. Then the passes mark constant arguments (``AttachAttrLayoutFreeBuffers``), kernels that
    find their weights in the caches (``mark_reused_weights``) and kernels with 7-bit weights
    (``mark_small_weights``). The marks are part of a workload's hash.
    """
    fusions = [read_shuffled(), fuse_attention(), transform.DeadCodeElimination(), store_terms()]
    passes = [
        *([] if is_plain else fusions),
        transform.LegalizeOps({} if is_plain else legalize_map()),
        *([] if is_plain else [name_blocks()]),
        keep_written(),
        transform.AnnotateTIROpPattern(),
        fold_where_constant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        drop_fusion_stops(),
        transform.DeadCodeElimination(),
        *([] if is_plain else [limit_inlining(), mark_channelwise(), share_constants()]),
    ]
    if packs_weights:
        passes += [transform.AttachAttrLayoutFreeBuffers(), keep_layouts()]
        passes += [] if is_plain else [mark_reused_weights(), mark_small_weights()]
    return passes


def keep_written() -> tvm.transform.Pass:
    """Make a pass that shields kernels without blocks (``scatter_elements``) from schedules.

    The pass applies to CPUs only. On a GPU, TVM would bind the loops around the block to threads.
    """

    def keep(function: PrimFunc) -> PrimFunc | None:
        target = Target.current(allow_none=True)
        is_cpu = target is None or target.kind.name == "llvm"
        return in_block(function) if is_cpu and not has_root_block(function) else None

    return kernel_pass("KeepWritten", keep)


def fold_where_constant() -> tvm.transform.Pass:
    """Make a pass that runs ``FoldConstant`` only if it has an effect.

    That is the case if a call has only constant arguments, or is still an operator, which
    ``FoldConstant`` refuses.
    """

    def fold(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        can_fold = any(
            _is_operator(value) or _is_call_of_constants(value, bindings)
            for function in mod.functions.values()
            if isinstance(function, relax.Function)
            for block in function.body.blocks
            for bindings in (Bindings(block, {}),)
            for value in bindings.values.values()
        )
        return transform.FoldConstant()(mod) if can_fold else mod

    return tvm.transform.module_pass(fold, opt_level=0, name="FoldWhereConstant")


def _is_operator(value: Expr) -> bool:
    """Return whether a value is an operator call that ``LegalizeOps`` could turn into a kernel."""
    return bool(operator_name(value)) and value.op.get_attr("FLegalize") is not None


def _is_call_of_constants(value: Expr, bindings: Bindings) -> bool:
    if not isinstance(value, relax.Call):
        return False
    is_kernel = operator_name(value) == "relax.call_tir"
    operands = value.args[1] if is_kernel else relax.Tuple(value.args)
    fields = operands.fields if isinstance(operands, relax.Tuple) else [operands]
    return all(isinstance(bindings.value_of(field), GenericConst) for field in fields)


def legalize_map() -> dict[str, Callable[..., Any]]:
    """Return the legalizations that replace TVM's on a CPU, by operator.

    The map is for ``relax.transform.LegalizeOps(customize_legalize_map=...)``. TVM legalizes calls
    without a better form.
    """
    return {
        "relax.astype": legalize_cast,
        "relax.concat": legalize_concatenation,
        "relax.matmul": legalize_matmul,
        "relax.nn.conv2d": legalize_convolution,
        "relax.nn.max_pool2d": legalize_max_pool,
        "relax.nn.pad": legalize_pad,
        **dict.fromkeys(REDUCTIONS, legalize_reduction),
        **vector_math(),
    }


def register_schedule_rules() -> None:
    """Register the schedule rules that the kernels request.

    Call it before MetaSchedule generates design spaces. Further calls have no effect.
    """
    register_pool_rules()
    register_rule(CONCATENATION_RULE, schedule_concatenation)
    register_rule(CHANNELWISE_RULE, schedule_channelwise)
    register_rule(PACKED_RULE, schedule_packed)
    register_rule(ATTENTION_RULE, schedule_attention)
    register_rule(TILED_RULE, schedule_attention_in_tiles)
    register_rule(FEW_ROWS_RULE, schedule_few_rows)
    register_rule(NARROW_RULE, schedule_narrow)
    register_winograd_rules()
