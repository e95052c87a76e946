# SPDX-License-Identifier: Apache-2.0
"""Compiled models of several shapes joined in one library, with equal weights and kernels once."""

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
    """The function of a joined library that runs the model with a number: main, main_1, main_2."""
    return f"main_{number}" if number else "main"


@dataclass(frozen=True)
class ShapeModel:
    """A model of one shape after all passes.

    - ``mod``: its Relax functions, and its kernels as external functions.
    - ``kernels``: these as they were compiled; their names are those of no other shape.
    - ``objects``: their object files.
    """

    mod: IRModule
    kernels: Mapping[str, PrimFunc]
    objects: Mapping[str, Path]

    @staticmethod
    def of(linked: LinkedModel, folder: Path) -> "ShapeModel":
        """A linked model, with its object files copied to a directory."""
        objects = {}
        for name, path in linked.paths.items():
            objects[name] = folder / f"{name}.o"
            shutil.copyfile(path, objects[name])
        return ShapeModel(linked.mod, linked.kernels, objects)


@dataclass(frozen=True)
class _Folder:
    folder: Path


def join(models: Sequence[ShapeModel], folder: Path, target: Target) -> LinkedModel:
    """Join models: each one's ``main`` gets the name that ``entry_name`` gives.

    ``folder``: a directory that outlasts what is returned.
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
                # Two kernels are one if they differ in their names alone.
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
            # The first of equal kernels: the others' have their old symbols.
            functions.setdefault(variable, function)
    # What all models have in common, such as their attributes, is that of the first.
    mod = share_constants()(IRModule(functions, attrs=models[0].mod.attrs))
    return LinkedModel(mod, objects, _Folder(folder), target, kernels)


def _new_name(name: str, taken: set[str]) -> str:
    number, new = 0, name
    while new in taken:
        number += 1
        new = f"{name}_{number}"
    return new
