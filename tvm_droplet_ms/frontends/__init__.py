# SPDX-License-Identifier: Apache-2.0
"""Import an ONNX, PyTorch or Relax model as a Relax module with bound parameters."""

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from tvm.ir import IRModule

from ..session.errors import ModelError
from .extents import Dims, Shapes, check_dims, check_shapes
from .identity import identify
from .imported import ImportedModel

_KINDS = (
    "the path of an .onnx or .pt2 file, an onnx.ModelProto, a torch.export.ExportedProgram, a "
    "tuple (torch.nn.Module, example inputs), a Relax IRModule or a tuple (IRModule, parameters)"
)


def import_model(
    model: Any,
    shapes: Shapes | None = None,
    threads: int = 1,
    *,
    dims: Dims | None = None,
    constants: Mapping[str, Any] | None = None,
    in_place: Mapping[str, str] | None = None,
) -> ImportedModel:
    """Import a model of any kind that ``tune`` accepts, with the reference to check against.

    Raises ``ModelError`` if the kind is not supported or the model cannot be tuned.
    """
    if constants is not None and not isinstance(constants, Mapping):
        raise ModelError(f"constants is {constants!r}: expected arrays by the names of inputs")
    shapes, dims = check_shapes(shapes or {}), check_dims(dims or {})
    path = os.fspath(model) if isinstance(model, str | os.PathLike) else None
    rest: Any = None
    if path is not None:
        model, kind = _read(path)
    else:
        if isinstance(model, tuple) and len(model) == 2:
            model, rest = model
        kind = _kind_of(model)
    if kind == "onnx" and rest is None:
        from .onnx.importing import import_onnx

        given: dict[str, Any] = {"dims": dims, "constants": constants or {}, "in_place": in_place}
        imported = import_onnx(model, shapes, threads, path=path, **given)
        return replace(imported, identity=identify(model, path=path, constants=constants))
    if kind == "relax":
        from .relax import import_relax

        _refuse_names(constants, in_place)
        imported = import_relax(model, rest, shapes, dims)
        return replace(imported, identity=identify(model, rest))
    if kind == "torch":
        from .torch.importing import import_torch

        _refuse_names(constants, in_place)
        imported = import_torch(model, rest, shapes, threads, dims)
        return replace(imported, identity=identify(model, path=path))
    raise ModelError(f"model is a {type(model).__qualname__}: expected {_KINDS}")


def _kind_of(model: Any) -> str:
    """Return "onnx", "torch", "relax", or "" for another value. It does not import PyTorch."""
    if isinstance(model, IRModule):
        return "relax"
    packages = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "onnx" in packages and type(model).__name__ == "ModelProto":
        return "onnx"
    return "torch" if "torch" in packages else ""


def _read(path: str) -> tuple[Any, str]:
    """Read a file, and return its model and the kind of it."""
    if not os.path.exists(path):
        raise ModelError(f"model {path!r} does not exist: expected a file .onnx or .pt2")
    if path.endswith(".pt2"):
        from .torch.loading import load_exported_program

        return load_exported_program(path), "torch"
    # The next import loads TVM's importer, which raises without this package.
    if find_spec("onnx") is None:
        raise ModelError("an ONNX model needs the package onnx: pip install 'tvm-droplet-ms[onnx]'")
    from .onnx.importing import load_onnx

    return load_onnx(path), "onnx"


def _refuse_names(constants: Mapping[str, Any] | None, in_place: Mapping[str, str] | None) -> None:
    if constants:
        raise ModelError(
            f"constants names the input {next(iter(constants))!r}: only inputs of ONNX models can "
            "be bound; make a Relax module with (module, {name: array}) or export the program with "
            "the value"
        )
    if in_place:
        raise ModelError(
            f"in_place={in_place!r} names an input and an output of an ONNX model: a PyTorch "
            "module is written in place where it changes a buffer or an input itself, and a Relax "
            "module is not"
        )
