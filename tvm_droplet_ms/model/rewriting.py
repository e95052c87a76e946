# SPDX-License-Identifier: Apache-2.0
"""Passes that rewrite the bindings of a Relax function, one after the other."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm_ffi

import tvm
from tvm import relax

from .bindings import Bindings, Expr, Var, operator_name, users_of, values_of

Emit = Callable[[Expr], Var]
Rewrite = Callable[[Var, Expr, Emit], "Expr | None"]


def _rewrite_block(
    block: relax.BindingBlock, bindings: Bindings, rewrite: Rewrite
) -> relax.BindingBlock:
    builder = relax.BlockBuilder()
    new: list[relax.Binding] = []
    new_var = relax.DataflowVar if isinstance(block, relax.DataflowBlock) else relax.Var

    for binding in block.bindings:
        if not isinstance(binding, relax.VarBinding):
            new.append(binding)
            continue

        def emit(expr: Expr, hint: str = binding.var.name) -> Var:
            value = builder.normalize(expr)
            var = new_var(hint, value.ty)
            new.append(relax.VarBinding(var, value))
            bindings.values[var] = value
            return var

        value = rewrite(binding.var, binding.value, emit)
        if value is None:
            new.append(binding)
            continue
        value = builder.normalize(value)
        if not tvm_ffi.structural_equal(value.ty, binding.var.ty):
            raise ValueError(
                f"the new value of {binding.var.name} has the type {value.ty}, where "
                f"{binding.var.ty} was expected: a graph pass must keep types"
            )
        bindings.values[binding.var] = value
        new.append(relax.VarBinding(binding.var, value))
    return type(block)(new)


def stateless(
    rewrite: Callable[[Bindings, Var, Expr, Emit], "Expr | None"],
) -> Callable[[Bindings], Rewrite]:
    """Turn a rewrite that needs only the bindings into the ``make_rewrite`` of ``binding_pass``."""
    return lambda bindings: partial(rewrite, bindings)


def binding_pass(
    name: str, make_rewrite: Callable[[Bindings], Rewrite], required: Sequence[str] = ()
) -> tvm.transform.Pass:
    """Make a pass that gives variables of Relax functions new values of the same types.

    - ``make_rewrite``: takes the bindings of a block and makes the rewrite. The rewrite is called
      with each variable, its value, and a function that binds an expression to a new variable in
      front. The rewrite returns the new value, or None to keep the value. ``Bindings.values`` is
      kept up to date.
    - ``required``: the pass skips functions that call none of these operators. If empty, the pass
      rewrites every function.

    Returns the pass. It leaves unused values to dead code elimination. It does not rewrite
    functions that FuseOps made (attribute "Primitive") or the branches of ``If``. It raises
    ValueError if a new value has another type than its variable.
    """

    def transform(func: relax.Function, _mod: Any, _ctx: Any) -> relax.Function:
        if not isinstance(func.body, relax.SeqExpr) or (func.attrs and "Primitive" in func.attrs):
            return func
        if required and {operator_name(value) for value in values_of(func)}.isdisjoint(required):
            return func
        users = users_of(func)
        blocks = []
        for block in func.body.blocks:
            bindings = Bindings(block, users)
            blocks.append(_rewrite_block(block, bindings, make_rewrite(bindings)))
        body = relax.SeqExpr(blocks, func.body.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)

    return relax.transform.function_pass(transform, opt_level=0, name=name)
