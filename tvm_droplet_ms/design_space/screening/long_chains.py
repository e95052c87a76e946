# SPDX-License-Identifier: Apache-2.0
"""Finds unrolled chains of maxima or minima, which LLVM takes exponential time to compile.

LLVM 22 looks for checksums in loops of 8, 16, 24, ... iterations (``HashRecognize``). A maximum is
a comparison and a selection. LLVM follows the float through both without memoization, so each
further maximum doubles the time. 28 took 9 s, and 35 took more than a minute.
"""

from typing import Any

from tvm_ffi.structural import structural_walk

from tvm import tirx
from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.tirx import ForKind, IntImm, IterVar, PrimFunc, Var

from .soundness import realizations

LONGEST = 20
"""Maximum number of chained maxima: 2 ** 20 steps take some milliseconds."""

_MOST_STEPS, _EXPLICIT = "pragma_auto_unroll_max_step", "pragma_unroll_explicit"
_CHOICES = (tirx.Max, tirx.Min, tirx.Select)


def long_chain(mod: IRModule) -> str | None:
    """Find a reduction by a maximum, a minimum or a selection that is unrolled too far.

    ``mod``: a scheduled workload after its postprocessors. Returns the name of the block; None if
    there is none.
    """
    for function in mod.functions.values():
        if isinstance(function, PrimFunc):
            for realize, loops in realizations(function.body):
                if _chooses(realize.block) and _unrolled_steps(realize, loops) > LONGEST:
                    return str(realize.block.name_hint)
    return None


def _chooses(block: Any) -> bool:
    """True if a block reduces floats by comparing its result so far."""
    if not any(int(axis.iter_type) == IterVar.CommReduce for axis in block.iter_vars):
        return False
    written = [write.source for write in block.writes]
    found: list[Any] = []
    structural_walk(block.body, (_CHOICES, found.append))
    return any(
        str(choice.ty.dtype) in ("float32", "float64") and _loads(choice, written)
        for choice in found
    )


def _loads(value: Any, buffers: list[Any]) -> bool:
    """True if an expression loads one of some buffers."""
    loads: list[Any] = []
    structural_walk(value, (TensorLoad, loads.append))
    return any(load.source.same_as(buffer) for load in loads for buffer in buffers)


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
            structural_walk(value, (Var, reduced.append))
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
