# SPDX-License-Identifier: Apache-2.0
"""Import a Relax module for tuning."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..session.errors import ModelError
from .imported import ImportedModel, check_inputs


def import_relax(
    mod: IRModule,
    params: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> ImportedModel:
    """Check a Relax module and bind its parameters and extents.

    Raises ``ModelError`` if a parameter is unknown or not bound, or a shape is missing.
    """
    mod = _with_main(mod)
    names = [parameter.name for parameter in mod["main"].params]
    if params:
        if unknown := sorted(set(params) - set(names)):
            raise ModelError(
                f"parameter {unknown[0]!r} is not one of the module's: expected {', '.join(names)}"
            )
        mod = relax.transform.BindParams("main", {k: _tensor(v) for k, v in params.items()})(mod)
    mod = bind_shapes(bind_dims(mod, dims or {}), shapes or {})
    return ImportedModel(mod, check_inputs(mod))


def bind_dims(mod: IRModule, dims: Mapping[str, int]) -> IRModule:
    """Bind symbolic variables by name. Raises ``ModelError`` if no input has such an extent."""
    if not dims:
        return mod
    shapes = [getattr(parameter.ty, "shape", None) for parameter in mod["main"].params]
    extents = [e for shape in shapes if isinstance(shape, relax.ShapeExpr) for e in shape]
    variables = {str(e.name): e for e in extents if isinstance(e, tvm.tirx.Var)}
    if unknown := sorted(set(dims) - set(variables)):
        found = f"it leaves open {', '.join(variables)}" if variables else "none is open by name"
        raise ModelError(f"dims names the extent {unknown[0]!r} of the model's inputs: {found}")
    values = {variables[name]: int(extent) for name, extent in dims.items()}
    return relax.transform.BindSymbolicVars(values)(mod)


def bind_shapes(mod: IRModule, shapes: Mapping[str, Sequence[int]]) -> IRModule:
    """Bind the symbolic extents of inputs. Raises ``ModelError`` if a shape does not fit."""
    parameters = {parameter.name: parameter for parameter in mod["main"].params}
    values: dict[Any, int] = {}
    for name, shape in shapes.items():
        if name not in parameters:
            raise ModelError(
                f"shapes names the input {name!r}: the model has {', '.join(parameters)}"
            )
        declared = getattr(parameters[name].ty, "shape", None)
        misfit = f"shapes gives {name!r} the shape {tuple(shape)}: the model has {declared}"
        if not isinstance(declared, relax.ShapeExpr) or len(declared) != len(shape):
            raise ModelError(misfit)
        for extent, value in zip(declared, shape, strict=True):
            if isinstance(extent, tvm.tirx.Var):
                if values.setdefault(extent, int(value)) != int(value):
                    raise ModelError(
                        f"shapes gives the symbolic extent {extent} two values: "
                        f"{values[extent]} and {value}"
                    )
            elif isinstance(extent, tvm.tirx.IntImm) and int(extent) != int(value):
                raise ModelError(misfit)
    return relax.transform.BindSymbolicVars(values)(mod) if values else mod


def _with_main(mod: IRModule) -> IRModule:
    """Return the module with its only Relax function named ``main``."""
    functions = {v.name_hint: f for v, f in mod.functions_items() if isinstance(f, relax.Function)}
    if "main" in functions:
        return mod
    if len(functions) != 1:
        raise ModelError(
            f"the module has the Relax functions {', '.join(functions) or '(none)'}: expected "
            "main, or only one"
        )
    (name,) = functions
    return with_main(mod, name)


def with_main(mod: IRModule, entry: str) -> IRModule:
    """Return the module with the function ``entry`` renamed to ``main``."""
    if entry == "main":
        return mod
    changed = IRModule(
        {v.name_hint: f for v, f in mod.functions_items() if v.name_hint != entry}, attrs=mod.attrs
    )
    changed["main"] = mod[entry].with_attr("global_symbol", "main")
    return changed


def _tensor(value: Any) -> tvm.runtime.Tensor:
    return value if isinstance(value, tvm.runtime.Tensor) else tvm.runtime.tensor(np.asarray(value))
