# SPDX-License-Identifier: Apache-2.0
"""Rename the functions of a module."""

from collections.abc import Mapping

from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.tirx import PrimFunc


def named_like(name: str, variable: GlobalVar) -> GlobalVar:
    """Return a variable with another name for a function of the same type."""
    other = GlobalVar(name)
    relax.expr._update_type(other, variable.ty)
    return other


def with_suffix(mod: IRModule, suffix: str) -> IRModule:
    """Append a suffix to the kernel names of a module that do not contain it."""
    if not suffix:
        return mod
    renamed = {
        variable.name_hint: named_like(variable.name_hint + suffix, variable)
        for variable, function in mod.functions_items()
        if isinstance(function, PrimFunc) and suffix not in variable.name_hint
    }
    return renamed_functions(mod, renamed)


def renamed_functions(mod: IRModule, renamed: Mapping[str, GlobalVar]) -> IRModule:
    """Rename some functions of a module, and the calls of these."""
    renaming = _Renaming(renamed)
    functions = {}
    for variable, function in mod.functions_items():
        new = renamed.get(variable.name_hint, variable)
        if isinstance(function, relax.Function):
            function = renaming.visit_expr(function)
        if function.attrs is not None and "global_symbol" in function.attrs:
            function = function.with_attr("global_symbol", new.name_hint)
        functions[new] = function
    return IRModule(functions, attrs=mod.attrs)


@relax.expr_functor.mutator
class _Renaming(relax.PyExprMutator):  # type: ignore[misc]
    """Replaces called functions by name."""

    def __init__(self, renamed: Mapping[str, GlobalVar]) -> None:
        super().__init__()
        self._renamed = renamed

    def visit_global_var_(self, op: GlobalVar) -> GlobalVar:
        return self._renamed.get(op.name_hint, op)
