# SPDX-License-Identifier: Apache-2.0
"""Several compiled models joined in one library, which holds equal weights and kernels once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm_ffi import structural_hash

from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...model.shared_constants import share_constants
from ..compile.kernel_objects import KernelObjects
from ..compile.linked_model import LinkedModel


def entry_name(number: int) -> str:
    """The function of a joined library that runs the model with a number: main, main_1, main_2."""
    return f"main_{number}" if number else "main"


@dataclass(frozen=True)
class Scheduled:
    """A model after all passes. ``mod``: its Relax functions. ``kernels``: those it calls."""

    mod: IRModule
    kernels: Mapping[str, PrimFunc]


def join(models: Sequence[Scheduled], objects: KernelObjects, target: Target) -> LinkedModel:
    """Join models: each one's ``main`` gets the name that ``entry_name`` gives.

    ``objects``: compiles the kernels. Raises as ``KernelObjects.compile`` does.
    """
    functions: dict[GlobalVar, relax.Function | relax.ExternFunc] = {}
    kernels: dict[str, PrimFunc] = {}
    variables: dict[str, GlobalVar] = {}
    names: dict[int, str] = {}
    for number, model in enumerate(models):
        renamed: dict[str, GlobalVar] = {}
        for variable, function in model.mod.functions_items():
            name = variable.name_hint
            if name in model.kernels:
                kernel = model.kernels[name]
                # Two kernels are one if they differ in their names alone.
                key = structural_hash(kernel.with_attr("global_symbol", ""))
                if key not in names:
                    names[key] = _new_name(name, number, kernels)
                    kernels[names[key]] = kernel.with_attr("global_symbol", names[key])
                    variables[names[key]] = _variable(names[key], variable)
                renamed[name] = variables[names[key]]
            else:
                renamed[name] = _variable(_name(name, number), variable)
        renaming = _Renaming(renamed)
        for variable, function in model.mod.functions_items():
            new = renamed[variable.name_hint]
            if isinstance(function, relax.Function):
                symbol = new.name_hint
                function = renaming.visit_expr(function).with_attr("global_symbol", symbol)
            elif variable.name_hint in model.kernels:
                function = relax.ExternFunc(new.name_hint)
            functions[new] = function
    # What all models have in common, such as their attributes, is that of the first.
    mod = share_constants()(IRModule(functions, attrs=models[0].mod.attrs))
    return LinkedModel(mod, objects.compile(kernels), objects, target, kernels)


def _name(name: str, number: int) -> str:
    return entry_name(number) if name == "main" else f"{name}_{number}" if number else name


def _new_name(name: str, number: int, taken: Mapping[str, PrimFunc]) -> str:
    return f"{name}_of_{number}" if name in taken else name


def _variable(name: str, like: GlobalVar) -> GlobalVar:
    variable = GlobalVar(name)
    relax.expr._update_type(variable, like.ty)
    return variable


@relax.expr_functor.mutator
class _Renaming(relax.PyExprMutator):  # type: ignore[misc]
    """Replaces the functions that are called, by their names."""

    def __init__(self, renamed: Mapping[str, GlobalVar]) -> None:
        super().__init__()
        self._renamed = renamed

    def visit_global_var_(self, op: GlobalVar) -> GlobalVar:
        return self._renamed.get(op.name_hint, op)
