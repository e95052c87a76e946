# SPDX-License-Identifier: Apache-2.0
"""Finds schedules that TVM compiles incorrectly, or LLVM in exponential time.

A tuple reduction, such as an argmax, binds the new values of the tuple and then stores them.
``VectorizeLoop`` (``vectorize_loop.cc``) turns each statement that it cannot vectorize into a loop.
If that statement is a binding, the store after it reads one lane's value for all lanes.

LLVM 22 looks for checksums in loops of 8, 16, 24, ... iterations (``HashRecognize``). A maximum is
a comparison and a selection. LLVM follows the float through both without memoization, so each
further maximum in an unrolled chain doubles the time.
"""

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.ir import Call, IRModule, Op
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.tirx import Bind, For, ForKind, IntImm, IterVar, PrimFunc, Var

from ..trees import nodes_in
from .soundness import first_block

_VECTORIZABLE = "TVectorizable"


def torn_tuple(mod: IRModule) -> str | None:
    """Find a block whose bindings are separated from the stores of their values.

    ``mod``: a scheduled workload after its postprocessors. Returns the name of the block; None if
    there is none.
    """
    for function in mod.functions.values():
        loops = nodes_in(function.body, For) if isinstance(function, PrimFunc) else ()
        for loop in loops:
            if loop.kind == ForKind.VECTORIZED:
                for realize in nodes_in(loop.body, SBlockRealize):
                    if _is_torn(realize, loop.loop_var):
                        return str(realize.block.name_hint)
    return None


def chooses_by(loop: Any) -> bool:
    """Return whether a block in a loop has a call that TVM cannot vectorize over that loop."""
    return any(
        _stays_scalar(call, loop.loop_var, _of_axes(realize))
        for realize in nodes_in(loop.body, SBlockRealize)
        for call in nodes_in(realize.block.body, Call)
    )


def _is_torn(realize: Any, lane: Any) -> bool:
    """Return whether a binding of a block has a lane-dependent call that stays scalar."""
    return any(
        _stays_scalar(call, lane, _of_axes(realize))
        for binding in nodes_in(realize.block.body, Bind)
        for call in nodes_in(binding.value, Call)
    )


def _of_axes(realize: Any) -> dict[Any, Any]:
    """Map the axis variables of a block to their values."""
    axes = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return {axis.var: value for axis, value in axes}


def _stays_scalar(call: Any, lane: Any, of_axes: Mapping[Any, Any]) -> bool:
    """Return whether a call stays scalar: a lane-dependent condition, or no vector form."""
    if not isinstance(call.op, Op):
        return True
    if call.op.name == "prim.if_then_else":
        return _depends(call.args[0], lane, of_axes)
    return not call.op.get_attr(_VECTORIZABLE) and any(
        _depends(argument, lane, of_axes) for argument in call.args
    )


def _depends(value: Any, lane: Any, of_axes: Mapping[Any, Any]) -> bool:
    return any(
        each.same_as(lane) or (each in of_axes and _depends(of_axes[each], lane, {}))
        for each in nodes_in(value, Var)
    )


LONGEST = 20
"""Maximum number of chained maxima: 2 ** 20 steps take some milliseconds."""

_MOST_STEPS, _EXPLICIT = "pragma_auto_unroll_max_step", "pragma_unroll_explicit"
_CHOICES = (tirx.Max, tirx.Min, tirx.Select)


def long_chain(mod: IRModule) -> str | None:
    """Find a reduction by a maximum, a minimum or a selection that is unrolled too far.

    ``mod``: a scheduled workload after its postprocessors. Returns the name of the block; None if
    there is none.
    """
    return first_block(
        mod,
        lambda realize, loops: (
            _chooses(realize.block) and _unrolled_steps(realize, loops) > LONGEST
        ),
    )


def _chooses(block: Any) -> bool:
    """True if a block reduces floats by comparing its result so far."""
    if not any(int(axis.iter_type) == IterVar.CommReduce for axis in block.iter_vars):
        return False
    written = [write.source for write in block.writes]
    return any(
        load.source.same_as(buffer)
        for choice in nodes_in(block.body, _CHOICES)
        if str(choice.ty.dtype) in ("float32", "float64")
        for load in nodes_in(choice, TensorLoad)
        for buffer in written
    )


def _unrolled_steps(realize: Any, loops: list[Any]) -> int:
    """Return the steps of a reduction that TVM unrolls in a loop that LLVM examines.

    This follows ``unroll_loop.cc``. The result is 0 if there is no such loop, and for kernels of
    GPUs, which LLVM does not compile.
    """
    if any(loop.kind == ForKind.THREAD_BINDING for loop in loops):
        return 0
    most = max((_most_steps(loop) for loop in loops), default=0)
    reduced: list[Any] = []
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if int(axis.iter_type) == IterVar.CommReduce:
            reduced += nodes_in(value, Var)
    steps, chain = len(realize.block.writes), 1
    for loop in reversed(loops):
        if loop.kind == ForKind.VECTORIZED:
            continue
        if not isinstance(loop.extent, IntImm):
            return 0
        extent = int(loop.extent)
        is_reduced = any(loop.loop_var.same_as(each) for each in reduced)
        if loop.kind != ForKind.UNROLLED and steps * extent > most:
            return chain if is_reduced and extent % 8 == 0 else 0
        steps *= extent
        chain *= extent if is_reduced else 1
    return 0


def _most_steps(loop: Any) -> int:
    """Return the number of steps up to which TVM unrolls explicitly within a loop."""
    is_explicit = bool(int(loop.annotations.get(_EXPLICIT, 0)))
    return int(loop.annotations.get(_MOST_STEPS, 0)) if is_explicit else 0
