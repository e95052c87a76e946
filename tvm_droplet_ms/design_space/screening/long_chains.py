# SPDX-License-Identifier: Apache-2.0
"""Unrolled chains of maxima or minima, which LLVM takes exponential time to compile.

LLVM 22 looks for checksums in loops of 8, 16, 24, ... iterations (``HashRecognize``). It follows a
float through both the comparison and the selection that each maximum is made of, and remembers
nothing: each further one doubles the time. 28 took 9 s, 35 were not compiled after a minute.
"""

from typing import Any

from tvm_ffi.structural import structural_walk

from tvm import tirx
from tvm.ir import IRModule
from tvm.tirx import ForKind, IntImm, IterVar, PrimFunc, Var

from .soundness import realizations

LONGEST = 20
"""The most maxima in a row: 2 ** 20 steps are some milliseconds."""

_MOST_STEPS = "pragma_auto_unroll_max_step"
_CHOICES = (tirx.Max, tirx.Min, tirx.Select)


def long_chain(mod: IRModule) -> str | None:
    """Find a reduction by a maximum, a minimum or a selection that is unrolled too far.

    ``mod``: a scheduled workload, its postprocessors applied. Returns the name of the block; None
    where there is none.
    """
    for function in mod.functions.values():
        if isinstance(function, PrimFunc):
            for realize, loops in realizations(function.body):
                if _chooses(realize.block) and _unrolled_steps(realize, loops) > LONGEST:
                    return str(realize.block.name_hint)
    return None


def _chooses(block: Any) -> bool:
    """True if a block reduces floats by something that compares them."""
    if not any(int(axis.iter_type) == IterVar.CommReduce for axis in block.iter_vars):
        return False
    found: list[Any] = []
    structural_walk(block.body, (_CHOICES, found.append))
    return any("float" in str(choice.ty) for choice in found)


def _unrolled_steps(realize: Any, loops: list[Any]) -> int:
    """The steps of a reduction that a loop as LLVM looks at has written out (``unroll_loop.cc``).

    None are counted where no such loop is around them.
    """
    most = max((int(loop.annotations.get(_MOST_STEPS, 0)) for loop in loops), default=0)
    reduced: list[Any] = []
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if int(axis.iter_type) == IterVar.CommReduce:
            structural_walk(value, (Var, reduced.append))
    steps, chain = 1, 1
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
