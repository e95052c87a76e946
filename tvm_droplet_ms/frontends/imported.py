# SPDX-License-Identifier: Apache-2.0
"""A model as Relax, with the information that a tuning run needs."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..model.bindings import shape_of_type
from ..session.errors import ModelError, first_line
from .integer_inputs import IntegerUse, integer_uses

Arrays = list[np.ndarray]

Run = Callable[[Sequence[np.ndarray]], Arrays]
Locate = Callable[[Sequence[np.ndarray], Callable[[IRModule], Run]], str]
"""Takes the inputs and a function that compiles a module; returns a node's description, or ""."""

_HALVES = ("float16", "bfloat16", "float8")
"""Types that are allowed for inputs and outputs, but not for computation: the rounding of a float16
sum hides the effect of a wrong schedule."""


LARGE = 1 << 27
"""A model with at least this many bytes of weights is held once, and read again where needed."""

COPIES, LOADED = 2, 2
"""Copies of the weights besides the imported module: for each shape, and while TVM's loader reads
the library back, which takes the most memory."""

PROGRAM_BYTES = 500_000_000
"""Memory of the program and its worker processes. With it and the copies, the estimate is 11 to 14%
above what ONNX files of 0.47 and 2.15 GB took: 2.10 and 8.19 GB."""

_CONTROL_GROUPS = (
    ("/sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file"),
    (
        "/sys/fs/cgroup/memory",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""The folder of all control groups, in version 2 and 1, the controller's name in `_OWN_GROUPS`, a
group's limit and its use of memory, and the part of the use that Linux gives back when it is
needed, in ``memory.stat``: cached pages of files."""

_OWN_GROUPS = "/proc/self/cgroup"
"""Names the control groups of this process."""


@dataclass(frozen=True)
class ModelIdentity:
    """The identity of a model, regardless of extents, threads and tuning options.

    - ``name``: its name for messages.
    - ``network``: a digest of its operators, and of the names, types and shapes of its weights.
    - ``weights``: a digest of the values of its weights and bound inputs.
    """

    name: str
    network: str
    weights: str


@dataclass(frozen=True)
class InputSpec:
    """An input of a model.

    - ``use``: the use of its integers, which determines random values.
    - ``extents``: for each axis, the name that the model gives its extent, or None; empty if it
      names none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    use: IntegerUse = field(default_factory=IntegerUse)
    extents: tuple[str | None, ...] = ()

    def random(self, generator: np.random.Generator) -> np.ndarray:
        """Draw a random input: standard normal floats; integers and booleans by their use.

        Bytes without a known use are drawn from their whole range: they are quantized numbers.
        """
        if "float" in self.dtype:
            return generator.standard_normal(self.shape).astype(self.dtype)
        if self.dtype in ("int8", "uint8") and self.use == IntegerUse():
            limits = np.iinfo(self.dtype)
            return generator.integers(limits.min, limits.max + 1, self.shape).astype(self.dtype)
        return self.use.random(self.shape, generator).astype(self.dtype)


@dataclass(frozen=True)
class Reference:
    """Another implementation of the model, to check the tuned one against.

    - ``fastest``: the implementation with its fastest settings, for timing; it may round
      differently. None for `run`.
    - ``rounding``: the relative rounding error of intermediate values: 2**-9 for eight bits. 0 for
      the rounding of their types.
    - ``release``: gives the memory of a large model back; the next run reads it again.
    - ``with_moved_weights``: takes a seed and makes a run whose weights are perturbed by a few
      rounding errors, which shows the effect of rounding inside the model. None if unavailable.
    """

    name: str
    run: Callable[[Sequence[np.ndarray]], Arrays]
    fastest: Callable[[Sequence[np.ndarray]], Arrays] | None = None
    rounding: float = 0.0
    with_moved_weights: Callable[[int], Run] | None = None
    release: Callable[[], None] = lambda: None


def run_reference(reference: Reference, inputs: Sequence[np.ndarray]) -> Arrays:
    """Run a reference on inputs that it may reject.

    Raises
    ------
    ModelError
        If the reference rejects the inputs, such as indices or lengths that do not fit.
    """
    # Each library has its own error classes.
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

    - ``mod``: module with one Relax function ``main``, bound parameters and static shapes.
    - ``reference``: the framework of the model. None if the import itself is the reference.
    - ``original``: the module to run as that reference, if the import is of a simplified model.
    - ``notes``: notes on the import for the user, one sentence each.
    - ``locate``: finds the node where the import differs from the reference.
    - ``output_names``: the names of the outputs, if the model has them.
    - ``output_extents``: the names of each output's extents, as ``InputSpec.extents``.
    """

    mod: IRModule
    inputs: tuple[InputSpec, ...]
    reference: Reference | None = None
    original: IRModule | None = None
    notes: tuple[str, ...] = ()
    locate: Locate | None = None
    identity: ModelIdentity | None = None
    output_names: tuple[str, ...] = ()
    output_extents: tuple[tuple[str | None, ...], ...] = ()


def check_inputs(mod: IRModule) -> tuple[InputSpec, ...]:
    """Return the inputs of ``main``, whose parameters must be bound and shapes must be static.

    If parameters have equal names, the second becomes "name_1", and so on. Raises ``ModelError``,
    which names the cause, if an input has a symbolic extent or is not a tensor, if the model
    computes in an unsupported type, or if it uses virtual devices.
    """
    if mod.global_infos.get("vdevice"):
        # TVM compiles such a module for several devices. It prints a line for each constant when
        # the library is saved or loaded ("Scope Saving", "Scope Loaded").
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
    """Make names distinct: Relax allows equal names for parameters."""
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
    """Raise ``ModelError`` for outputs without values to compare.

    These are outputs that are shapes, and empty outputs of a model with an empty input.
    """
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
    """Raise ``ModelError`` if a model computes in half floats; all other types compile as is."""

    wrong: list[str] = []

    def check(expression: Any) -> None:
        if not isinstance(expression, relax.Call):
            return
        name = str(getattr(expression.op, "name", expression.op))
        kind = getattr(expression, "ty", None)
        # Casts convert half-float inputs and outputs.
        if name != "relax.astype" and isinstance(kind, relax.TensorType):
            if str(kind.dtype).startswith(_HALVES):
                wrong.append(f"{kind.dtype} ({name})")

    # TVM would replace an error raised in the visitor by its own.
    relax.analysis.post_order_visit(function.body, check)
    if wrong:
        raise ModelError(
            f"the model computes in {wrong[0]}: expected float32, export it in that type"
        )


def _is_known(extent: Any) -> bool:
    return isinstance(extent, tvm.tirx.IntImm)


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names of a list, for a message."""
    more = len(names) - most
    return ", ".join(names[:most]) + f" and {more} more" * (more > 0)


def free_memory() -> int:
    """Return the bytes that this process can still take, by the machine and its control groups."""
    free = int(psutil.virtual_memory().available)
    for folder, controller, limit, usage, cached in _CONTROL_GROUPS:
        for group in _groups(Path(folder), controller):
            # Without a group there are no such files, and without a limit there is no number.
            with contextlib.suppress(OSError, ValueError):
                left = int((group / limit).read_text()) - int((group / usage).read_text())
                statistics = (group / "memory.stat").read_text().split()
                pages = dict(zip(statistics[::2], statistics[1::2], strict=False))
                free = min(free, left + int(pages.get(cached, 0)))
    return max(free, 0)


def _groups(folder: Path, controller: str) -> list[Path]:
    """Return the folders of this process's control group and of all groups that contain it."""
    own: list[str] = []
    with contextlib.suppress(OSError):
        for line in Path(_OWN_GROUPS).read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controller in controllers.split(","):
                own = name.strip("/").split("/")
    return [folder.joinpath(*own[:count]) for count in range(len(own) + 1)]


def needed_memory(weights: int, copies: int = 1) -> int:
    """Return the bytes that tuning a model takes besides its imported weights of this size."""
    loading, program = (LOADED * weights, PROGRAM_BYTES) if weights >= LARGE else (0, 0)
    return copies * COPIES * weights + loading + program


def check_memory(
    weights: int, available: int | None = None, *, copies: int = 1, unread: int = 0
) -> None:
    """Raise ``ModelError`` if tuning needs more than the available bytes; None for free memory.

    ``weights``: their bytes. ``copies``: the number of shapes that the model is tuned for.
    ``unread``: the bytes of weights that the import is going to hold.
    """
    available = free_memory() if available is None else available
    needed = needed_memory(weights, copies) + unread
    if needed > available:
        raise ModelError(
            f"the model needs {needed / 1e9:.1f} GB more memory while it is tuned, and "
            f"{available / 1e9:.1f} GB are free: use a machine with more"
        )


def memory_note(weights: int, copies: int = 1) -> tuple[str, ...]:
    """Say what tuning a large model needs."""
    if weights < LARGE:
        return ()
    return (
        f"the weights have {weights / 1e9:.1f} GB: tuning takes up to "
        f"{needed_memory(weights, copies) / 1e9:.1f} GB of memory, and "
        f"{free_memory() / 1e9:.1f} GB are free",
    )
