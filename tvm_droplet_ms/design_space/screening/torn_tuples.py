# SPDX-License-Identifier: Apache-2.0
"""Finds vectorized tuple reductions, such as an argmax, that TVM compiles incorrectly.

Such a block binds the new values of the tuple and then stores them. ``VectorizeLoop``
(``vectorize_loop.cc``) turns each statement that it cannot vectorize into a loop. If that statement
is a binding, the store after it reads one lane's value for all lanes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tvm_ffi.structural import structural_walk

from tvm.ir import Call, IRModule, Op
from tvm.s_tir import SBlockRealize
from tvm.tirx import Bind, For, ForKind, PrimFunc, Var

_VECTORIZABLE = "TVectorizable"


def torn_tuple(mod: IRModule) -> str | None:
    """Find a block whose bindings are separated from the stores of their values.

    ``mod``: a scheduled workload after its postprocessors. Returns the name of the block; None if
    there is none.
    """
    for function in mod.functions.values():
        if not isinstance(function, PrimFunc):
            continue
        loops: list[Any] = []
        structural_walk(function.body, (For, loops.append))
        for loop in loops:
            if loop.kind == ForKind.VECTORIZED:
                for realize in _realizations(loop.body):
                    if _is_torn(realize, loop.loop_var):
                        return str(realize.block.name_hint)
    return None


def chooses_by(loop: Any) -> bool:
    """Return whether a block in a loop has a call that TVM cannot vectorize over that loop."""
    for realize in _realizations(loop.body):
        calls: list[Any] = []
        structural_walk(realize.block.body, (Call, calls.append))
        if any(_stays_scalar(call, loop.loop_var, _of_axes(realize)) for call in calls):
            return True
    return False


def _realizations(body: Any) -> Iterator[Any]:
    found: list[Any] = []
    structural_walk(body, (SBlockRealize, found.append))
    yield from found


def _is_torn(realize: Any, lane: Any) -> bool:
    """Return whether a binding of a block has a lane-dependent call that stays scalar."""
    bindings: list[Any] = []
    structural_walk(realize.block.body, (Bind, bindings.append))
    if not bindings:
        return False
    calls: list[Any] = []
    for binding in bindings:
        structural_walk(binding.value, (Call, calls.append))
    return any(_stays_scalar(call, lane, _of_axes(realize)) for call in calls)


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
    variables: list[Any] = []
    structural_walk(value, (Var, variables.append))
    return any(
        each.same_as(lane) or (each in of_axes and _depends(of_axes[each], lane, {}))
        for each in variables
    )
