# SPDX-License-Identifier: Apache-2.0
"""Passes that rewrite the bindings, calls or constants of Relax functions."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import tvm_ffi

import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule

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


def operator_pass(
    name: str, operators: Collection[str] = (), required: Collection[str] = ()
) -> Callable[[Callable[[Bindings, Expr, Emit], "Expr | None"]], Callable[[], tvm.transform.Pass]]:
    """Turn a rewrite of calls into a function that makes the pass; see ``binding_pass``.

    The rewrite takes the bindings of a block, a value and the function that binds an expression.
    ``operators``: the rewrite is called with calls of these operators; if empty, with all values.
    ``required``: the pass skips functions that call none of these; by default, ``operators``.
    """

    def decorate(
        rewrite: Callable[[Bindings, Expr, Emit], "Expr | None"],
    ) -> Callable[[], tvm.transform.Pass]:
        def rewrite_calls(bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
            is_one = not operators or operator_name(value) in operators
            return rewrite(bindings, value, emit) if is_one else None

        def make_pass() -> tvm.transform.Pass:
            return binding_pass(
                name, lambda bindings: partial(rewrite_calls, bindings), required or operators
            )

        make_pass.__doc__, make_pass.__name__ = rewrite.__doc__, rewrite.__name__
        return make_pass

    return decorate


def binding_pass(
    name: str, make_rewrite: Callable[[Bindings], Rewrite], required: Collection[str] = ()
) -> tvm.transform.Pass:
    """Make a pass that gives variables of Relax functions new values of the same types.

    - ``make_rewrite``: takes the bindings of a block and makes the rewrite. The rewrite is called
      with each variable, its value, and a function that binds an expression to a new variable in
      front. The rewrite returns the new value, or None to keep the value. ``Bindings.values`` is
      kept up to date.
    - ``required``: the pass skips functions that call none of these operators. If empty, the pass
      rewrites every function.

    It leaves unused values to dead code elimination. It does not rewrite functions that FuseOps
    made (attribute "Primitive") or the branches of ``If``. It raises ValueError if a new value has
    another type than its variable.
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


def call_pass(name: str, replace: Callable[[Any, Any], Any]) -> tvm.transform.Pass:
    """Make a pass that replaces calls by calls of new kernels.

    ``replace``: takes the mutator, which has ``builder_`` and ``lookup_binding``, and a call. It
    returns the new call, or the call itself.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        mutator = _CallMutator(mod, replace)
        for variable, function in mod.functions_items():
            if isinstance(function, relax.Function):
                mutator.builder_.update_func(variable, mutator.visit_expr(function))
        return mutator.builder_.get()

    return tvm.transform.module_pass(run, opt_level=0, name=name)


@relax.expr_functor.mutator
class _CallMutator(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule, replace: Callable[[Any, Any], Any]) -> None:
        super().__init__(mod)
        self._replace = replace

    def visit_call_(self, call: Any) -> Any:
        return self._replace(self, super().visit_call_(call))


def replace_constants(mod: IRModule, replace: Callable[[GenericConst], GenericConst]) -> IRModule:
    """Return a module with other constants in its Relax functions."""
    mutator = _ConstantMutator(replace)
    changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function):
            changed.update_func(variable, mutator.visit_expr(function))
    return changed


@relax.expr_functor.mutator
class _ConstantMutator(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, replace: Callable[[GenericConst], GenericConst]) -> None:
        super().__init__()
        self._replace = replace

    def visit_generic_const_(self, op: GenericConst) -> GenericConst:
        return self._replace(op)
