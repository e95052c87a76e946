# SPDX-License-Identifier: Apache-2.0
"""The common list of passes from a graph to its kernels.

``tune``, the pipeline "droplet_tuning" and the graph search all use this list, so they share
databases.
"""

import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule
from tvm.relax import transform
from tvm.target import Target
from tvm.tirx import PrimFunc

from ..bindings import Bindings, Expr, operator_name
from ..fusion_stops import drop_fusion_stops
from ..scheduled import in_block
from ..shared_constants import share_constants
from .attention.fused_attention import fuse_attention
from .block_names import name_blocks
from .channelwise import mark_channelwise
from .fixed_layouts import keep_layouts
from .groups.shuffled_convolution import read_shuffled
from .inlining import limit_inlining
from .kernel_pass import has_root_block, kernel_pass
from .registration import legalize_map
from .stored_terms import store_terms
from .weights.small_weights import mark_small_weights
from .weights.weight_reuse import mark_reused_weights


def lowering_passes(
    *, is_plain: bool = False, packs_weights: bool = True
) -> list[tvm.transform.Pass]:
    """Make the passes that turn the operators of a graph into kernels, and fuse them.

    The passes apply to a prepared graph (``model.prepare``), within the target. ``is_plain``:
    whether to use only TVM's own kernels, for non-CPU targets and for comparisons.
    ``packs_weights``: whether schedules may change the layout of weights, which must then be
    packed. In that case the passes mark constant arguments (``AttachAttrLayoutFreeBuffers``),
    kernels that find their weights in the caches (``mark_reused_weights``) and kernels with 7-bit
    weights (``mark_small_weights``). The marks are part of a workload's hash.
    """
    passes = [
        *([] if is_plain else _fusions()),
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


def _fusions() -> list[tvm.transform.Pass]:
    """Return the passes that fuse operators before legalization."""
    return [read_shuffled(), fuse_attention(), transform.DeadCodeElimination(), store_terms()]


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
    ``FoldConstant`` refuses. On 10,000 calls of an unrolled loop, it took 43 s to find neither.
    """

    def fold(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        return transform.FoldConstant()(mod) if _can_fold(mod) else mod

    return tvm.transform.module_pass(fold, opt_level=0, name="FoldWhereConstant")


def _can_fold(mod: IRModule) -> bool:
    return any(
        _is_operator(value) or _is_call_of_constants(value, bindings)
        for _, function in mod.functions_items()
        if isinstance(function, relax.Function)
        for block in function.body.blocks
        for bindings in (Bindings(block, {}),)
        for value in bindings.values.values()
    )


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
