# SPDX-License-Identifier: Apache-2.0
"""A model as Relax, with what a tuning run must know of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import psutil

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..model.bindings import shape_of_type, weight_bytes
from ..session.errors import ModelError
from .integer_inputs import IntegerUse, integer_uses

Arrays = list[np.ndarray]

Run = Callable[[Sequence[np.ndarray]], Arrays]
Locate = Callable[[Sequence[np.ndarray], Callable[[IRModule], Run]], str]
"""Takes the inputs and a function that compiles a module; returns a node in words, or nothing."""

_HALVES = ("float16", "bfloat16", "float8")
"""Types that a model may have at its borders, but not compute in: the rounding of a float16 sum
hides what a wrong schedule does."""


COPIES = 2
"""Copies of the weights that are made of the imported module: those of the prepared one, and the
packed ones in the executable."""


@dataclass(frozen=True)
class ModelIdentity:
    """A model, whatever the extents, the threads and the options it is tuned with.

    - ``name``: its name, for a sentence.
    - ``network``: a digest of its operators, and of the names, types and shapes of its weights.
    - ``weights``: a digest of the values of its weights, and of inputs that are bound.
    """

    name: str
    network: str
    weights: str


@dataclass(frozen=True)
class InputSpec:
    """An input of a model; ``use`` says what its integers are, by which random ones are drawn."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    use: IntegerUse = field(default_factory=IntegerUse)

    def random(self, generator: np.random.Generator) -> np.ndarray:
        """A random input: standard normal; integers and booleans by their use."""
        if "float" in self.dtype:
            return generator.standard_normal(self.shape).astype(self.dtype)
        return self.use.random(self.shape, generator).astype(self.dtype)


@dataclass(frozen=True)
class Reference:
    """Another implementation of the model, to check the tuned one against.

    - ``fastest``: the same at its fastest, to be timed; it may round in another way. None for
      `run`.
    - ``rounding``: what values inside are rounded to, relative to them: 2**-9 where they are of
      eight bits. 0 for what their types are.
    - ``with_moved_weights``: makes a run with weights that are moved by a few rounding errors, by
      a seed, which tells what rounding inside the model does. None where there is none.
    """

    name: str
    run: Callable[[Sequence[np.ndarray]], Arrays]
    fastest: Callable[[Sequence[np.ndarray]], Arrays] | None = None
    rounding: float = 0.0
    with_moved_weights: Callable[[int], Run] | None = None


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].strip()[:300]


def run_reference(reference: Reference, inputs: Sequence[np.ndarray]) -> Arrays:
    """Run a reference on inputs that it may refuse.

    Raises
    ------
    ModelError
        If it does: such as indices and lengths that do not fit.
    """
    # Each library has errors of its own.
    try:
        return reference.run(inputs)
    except Exception as error:
        raise ModelError(
            f"{reference.name} cannot run the model on the inputs of the check "
            f"({first_line(error)}): pass values that it takes with inputs={{name: array}} "
            "(--inputs FILE.npz), or bind lengths with constants={name: value} (--constant)"
        ) from error


@dataclass(frozen=True)
class ImportedModel:
    """A model as Relax.

    - ``mod``: module with one Relax function ``main``, its parameters bound, its shapes static.
    - ``reference``: the framework that the model came from. None: the import itself is run.
    - ``original``: the module to run then, where nodes were rewritten before the import.
    - ``notes``: what a user should know of the import, a sentence each.
    - ``locate``: finds what the import computes otherwise than the reference.
    """

    mod: IRModule
    inputs: tuple[InputSpec, ...]
    reference: Reference | None = None
    original: IRModule | None = None
    notes: tuple[str, ...] = ()
    locate: Locate | None = None
    identity: ModelIdentity | None = None


def check_inputs(mod: IRModule) -> tuple[InputSpec, ...]:
    """The inputs of ``main``, whose parameters must be bound and whose shapes must be static.

    Of parameters of one name, the second is called "name_1", and so on. Raises ``ModelError``,
    which names the culprit, if an input has an open extent or is not a tensor, the model computes
    in a type that is not supported, or it names virtual devices.
    """
    if mod.global_infos.get("vdevice"):
        # TVM compiles such a module for several devices, and prints a line for each constant of
        # its library whenever that is saved or loaded ("Scope Saving", "Scope Loaded").
        raise ModelError(
            "the model places tensors on virtual devices (relax.VDevice): it is tuned for one CPU, "
            "pass a module without them"
        )
    function = mod["main"]
    count = int((function.attrs or {}).get("num_input", len(function.params)))
    if unbound := [parameter.name for parameter in function.params[count:]]:
        raise ModelError(
            f"parameter {unbound[0]!r} is not bound, {len(unbound)} in all: pass "
            "(module, {name: array}), or import the model with its parameters as constants"
        )
    specs = [_input_spec(parameter) for parameter in function.params]
    _check_outputs(function)
    _check_types(function)
    names = _distinct([spec.name for spec in specs])
    return tuple(
        replace(spec, name=name, use=use)
        for spec, name, use in zip(specs, names, integer_uses(mod), strict=True)
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of which no two are equal: Relax allows that for parameters."""
    distinct: list[str] = []
    for name in names:
        number, other = 0, name
        while other in distinct or (number and other in names):
            number += 1
            other = f"{name}_{number}"
        distinct.append(other)
    return distinct


def _input_spec(parameter: relax.Var) -> InputSpec:
    name, kind = parameter.name, parameter.ty
    if not isinstance(kind, relax.TensorType):
        raise ModelError(f"input {name!r} is {kind}: expected a tensor")
    if not isinstance(kind.shape, relax.ShapeExpr):
        raise ModelError(f"input {name!r} has no shape: pass shapes={{{name!r}: (1, ...)}}")
    extents = list(kind.shape)
    if not all(map(_is_known, extents)):
        shown = ", ".join(
            str(extent.value) if _is_known(extent) else str(extent) for extent in extents
        )
        example = ", ".join(str(e.value) if _is_known(e) else "1" for e in extents)
        raise ModelError(
            f"input {name!r} has the symbolic shape ({shown}): pass the extents to tune for, such "
            f"as shapes={{{name!r}: ({example})}}"
        )
    return InputSpec(name, tuple(int(extent) for extent in extents), str(kind.dtype))


def _check_outputs(function: relax.Function) -> None:
    """Refuse an output that is a shape, and outputs without an element where an input has none:
    they have no values that a caller could compare."""
    kinds, shapes = [function.ret_ty], []
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, relax.TupleType):
            kinds += list(kind.fields)
        elif isinstance(kind, relax.TensorType):
            shapes.append(shape_of_type(kind))
        elif isinstance(kind, relax.ShapeType):
            raise ModelError(
                "an output of the model is the shape of a tensor whose extents depend on data: "
                "expected outputs that are tensors, export the model without it"
            )
    shapes_in = [shape_of_type(parameter.ty) or () for parameter in function.params]
    is_empty = all(shape is not None and 0 in shape for shape in shapes)
    if is_empty and any(0 in shape for shape in shapes_in):
        raise ModelError(
            "no output of the model has an element with these extents: pass extents of at least 1 "
            "where an output depends on them"
        )


def _check_types(function: relax.Function) -> None:
    """Refuse models that compute in half floats; all other types compile as they are."""

    wrong: list[str] = []

    def check(expression: Any) -> None:
        if not isinstance(expression, relax.Call):
            return
        name = str(getattr(expression.op, "name", expression.op))
        kind = getattr(expression, "ty", None)
        # Casts are how such inputs and outputs are read and made.
        if name != "relax.astype" and isinstance(kind, relax.TensorType):
            if str(kind.dtype).startswith(_HALVES):
                wrong.append(f"{kind.dtype} ({name})")

    # An error raised in the visitor would come out as TVM's.
    relax.analysis.post_order_visit(function.body, check)
    if wrong:
        raise ModelError(
            f"the model computes in {wrong[0]}: expected float32, export it in that type"
        )


def _is_known(extent: Any) -> bool:
    return isinstance(extent, tvm.tirx.IntImm)


def check_memory(imported: ImportedModel, available: int | None = None, *, copies: int = 1) -> None:
    """Refuse a model whose weights do not fit in the available bytes; None for what is free.

    ``copies``: the shapes that it is tuned for.
    """
    if available is None:
        available = int(psutil.virtual_memory().available)
    needed = copies * COPIES * weight_bytes(imported.mod["main"])
    if needed > available:
        raise ModelError(
            f"the model needs {needed / 1e9:.1f} GB more memory while it is tuned, and "
            f"{available / 1e9:.1f} GB are free: use a machine with more"
        )
