# SPDX-License-Identifier: Apache-2.0
"""Join compiled models of several shapes in one library that shares equal weights and kernels."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_ffi import structural_hash

from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...model.shared_constants import share_constants
from ..compile.linked_model import LinkedModel
from ..compile.naming import named_like, renamed_functions


def entry_name(number: int) -> str:
    """Return a joined library's function for a model by its index: main, main_1, main_2."""
    return f"main_{number}" if number else "main"


@dataclass(frozen=True)
class ShapeModel:
    """A model of one shape after all passes.

    - ``mod``: its Relax functions, and its kernels as external functions.
    - ``kernels``: the compiled TIR functions by name; the names are unique among all shapes.
    - ``objects``: the object files of the kernels by name.
    """

    mod: IRModule
    kernels: Mapping[str, PrimFunc]
    objects: Mapping[str, Path]

    @staticmethod
    def of(linked: LinkedModel, folder: Path) -> "ShapeModel":
        """Make one from a linked model, with its object files copied to a directory."""
        objects = {}
        for name, path in linked.paths.items():
            objects[name] = folder / f"{name}.o"
            shutil.copyfile(path, objects[name])
        return ShapeModel(linked.mod, linked.kernels, objects)


@dataclass(frozen=True)
class _Folder:
    folder: Path


def join(models: Sequence[ShapeModel], folder: Path, target: Target) -> LinkedModel:
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
                    kernels[name], objects[name] = model.kernels[name], model.objects[name]
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
    return LinkedModel(mod, objects, _Folder(folder), target, kernels)


def _new_name(name: str, taken: set[str]) -> str:
    number, new = 0, name
    while new in taken:
        number += 1
        new = f"{name}_{number}"
    return new
