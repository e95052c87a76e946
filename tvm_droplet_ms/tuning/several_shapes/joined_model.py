# SPDX-License-Identifier: Apache-2.0
"""Join compiled models of several shapes in one library that shares equal weights and kernels."""

from collections.abc import Sequence
from pathlib import Path

from tvm_ffi import structural_hash

from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...model.shared_constants import share_constants
from ..compile.description import entry_name
from ..compile.linked_model import LinkedModel
from ..compile.naming import named_like, renamed_functions
from .weight_layouts import WeightLayouts


class OneShape:
    """The state of one shape among several.

    - ``executable``: the name of its own library in the work directory.
    - ``suffix``: appended to its kernel names, so that they are unique among all shapes.
    - ``layouts``: the weight layouts of other shapes.
    - ``model``: the model that was compiled last; None before that.
    """

    def __init__(self, number: int, layouts: WeightLayouts, folder: Path) -> None:
        self.executable = f"shape_{number}.so"
        self.suffix = f"_shape_{number}" if number else ""
        self.layouts = layouts
        self.model: LinkedModel | None = None
        self._folder = folder

    def keep(self, linked: LinkedModel) -> None:
        """Keep a compiled model and copies of its object files, which the workers delete."""
        self.model = linked.copied_to(self._folder)


def join(models: Sequence[LinkedModel], folder: Path, target: Target) -> LinkedModel:
    """Join models; each ``main`` gets its ``entry_name``.

    ``folder``: a directory that outlives the returned model.
    """
    functions: dict[GlobalVar, object] = {}
    kernels: dict[str, PrimFunc] = {}
    objects: dict[str, Path] = {}
    of_hash: dict[int, GlobalVar] = {}
    taken = {entry_name(number) for number in range(len(models))}
    taken |= {name for model in models for name in model.kernels}
    for number, model in enumerate(models):
        renamed: dict[str, GlobalVar] = {}
        for variable, function in model.mod.functions_items():
            name = variable.name_hint
            if name in model.kernels:
                # Kernels that differ only in their names are merged.
                key = structural_hash(model.kernels[name].with_attr("global_symbol", ""))
                if key not in of_hash:
                    of_hash[key] = variable
                    kernels[name], objects[name] = model.kernels[name], model.paths[name]
                renamed[name] = of_hash[key]
            elif name == "main":
                renamed[name] = named_like(entry_name(number), variable)
            elif isinstance(function, relax.Function):
                renamed[name] = named_like(_new_name(name, taken), variable)
                taken.add(renamed[name].name_hint)
        for variable, function in renamed_functions(model.mod, renamed).functions_items():
            # Keep the first of equal kernels: the others have different symbols.
            functions.setdefault(variable, function)
    # The joined module has the attributes of the first model.
    mod = share_constants()(IRModule(functions, attrs=models[0].mod.attrs))
    return LinkedModel(mod, objects, folder, target, kernels)


def _new_name(name: str, taken: set[str]) -> str:
    number, new = 0, name
    while new in taken:
        number += 1
        new = f"{name}_{number}"
    return new
