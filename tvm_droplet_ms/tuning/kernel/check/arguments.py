# SPDX-License-Identifier: Apache-2.0
"""The arguments of a kernel: their uses, random values, and the tolerances of its outputs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from tvm_ffi.structural import structural_walk

from tvm import tirx
from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.tirx import BufferStore, Cast, Div, FloorDiv, FloorMod, Mod
from tvm.tirx.buffer import BufferType

from ....cost_model.features.loop_context import scheduled_blocks
from ....measure.deviation import NOISE, moved_by_rounding
from ....session.given_inputs import given_values
from ..errors import KernelError


@dataclass
class IntegerRole:
    """The values that an integer argument may take.

    ``low``: the minimum. ``high``: the exclusive maximum; None if no axis limits the values.
    """

    low: int = 0
    high: int | None = None


def integer_roles(mod: IRModule) -> dict[str, IntegerRole]:
    """The roles of all integer arguments of an unscheduled kernel, by name.

    An argument used directly as an index is below the extent of its shortest axis. An argument from
    which an index is computed is 0. If an index is loaded from an intermediate buffer, all integer
    arguments are 0, because intermediate values are not traced. An argument used only as a divisor
    is at least 1.
    """
    func = mod["main"]
    places = {param: str(param.name) for param in func.params if _is_integer(param)}
    roles = {name: IntegerRole() for name in places.values()}

    def limit(load: Any, high: int) -> None:
        own = places.get(load.source)
        for name in [own] if own is not None else roles:
            role = roles[name]
            role.high = high if role.high is None else min(role.high, high)

    def access(buffer: Any, indices: Any) -> None:
        for index, extent in zip(indices, buffer.shape, strict=True):
            direct = _without_casts(index)
            if isinstance(direct, TensorLoad):
                limit(direct, int(extent) if direct.source in places else 1)
            else:
                structural_walk(index, (TensorLoad, lambda load: limit(load, 1)))

    def divide(node: Any) -> None:
        divisor = _without_casts(node.b)
        if isinstance(divisor, TensorLoad) and divisor.source in places:
            roles[places[divisor.source]].low = 1

    structural_walk(
        func.body,
        [
            (TensorLoad, lambda load: access(load.source, load.indices)),
            (BufferStore, lambda store: access(store.buffer, store.indices)),
            ((Div, Mod, FloorDiv, FloorMod), divide),
        ],
    )
    # A divisor that is also an index keeps the range of an index.
    return {
        name: IntegerRole(0 if role.high is not None else role.low, role.high)
        for name, role in roles.items()
    }


def _is_integer(buffer: Any) -> bool:
    return str(buffer.dtype).startswith(("int", "uint"))


def _without_casts(expression: Any) -> Any:
    while isinstance(expression, Cast):
        expression = expression.value
    return expression


_REDUCE = int(tirx.IterVar.CommReduce)

ROUNDINGS = 8.0
"""Tolerance of an output in ulps, to be multiplied by the square root of the number of terms."""


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The type in NumPy. Raises ``KernelError`` if NumPy has no such type."""
        try:
            return np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))
        except TypeError as error:
            raise KernelError(
                f"argument {self.name!r} has the type {self.dtype}, which NumPy does not have"
            ) from error


def arguments_of(mod: IRModule) -> tuple[Argument, ...]:
    """A kernel's arguments; ``KernelError`` if one is not a buffer with constant extents."""
    func = mod["main"]
    found = []
    for param in func.params:
        if not isinstance(param.ty, BufferType):
            raise KernelError(f"argument {param.name!r} is no buffer: expected buffers only")
        extents = list(param.shape)
        if not all(isinstance(extent, int | tirx.IntImm) for extent in extents):
            raise KernelError(
                f"argument {param.name!r} has the shape {extents}: expected constant extents"
            )
        shape = tuple(int(extent) for extent in extents)
        if any(extent < 1 for extent in shape):
            raise KernelError(
                f"argument {param.name!r} has the shape {list(shape)}: expected extents of at "
                "least 1, there is nothing to compute"
            )
        found.append(Argument(str(param.name), shape, str(param.dtype)))
    return tuple(found)


def random_arrays(
    arguments: Sequence[Argument],
    seed: int,
    given: Mapping[str, np.ndarray] | None = None,
    roles: Mapping[str, IntegerRole] | None = None,
) -> list[np.ndarray]:
    """Make values for the arguments: the values given by name, and random values for the others.

    Floating-point numbers are normally distributed. Integers used as indices are random indices
    into their axis. Other 8-bit integers are arbitrary, but divisors are positive. Longer integers
    and booleans are 0 or 1, and longer divisors are 1 or 2. Raises ``KernelError`` if a given value
    does not fit.
    """
    wanted = {argument.name: (argument.shape, argument.numpy_dtype) for argument in arguments}
    try:
        values = given_values(given or {}, wanted)
    except ValueError as error:
        raise KernelError(str(error)) from error
    generator = np.random.default_rng(seed)
    roles = roles or {}
    return [
        values[argument.name]
        if argument.name in values
        else _random(argument, generator, roles.get(argument.name, IntegerRole()))
        for argument in arguments
    ]


def measured_values(
    arguments: Sequence[Argument],
    arrays: Sequence[np.ndarray],
    given: Mapping[str, np.ndarray] | None,
    roles: Mapping[str, IntegerRole],
) -> dict[int, np.ndarray]:
    """The values, by argument position, that candidates are also timed on.

    These are given values, indices and divisors: they may crash a kernel or determine its time. The
    runner fills the other arguments.
    """
    free = IntegerRole()
    return {
        place: array
        for place, (argument, array) in enumerate(zip(arguments, arrays, strict=True))
        if argument.name in (given or {}) or roles.get(argument.name, free) != free
    }


def _random(argument: Argument, generator: np.random.Generator, role: IntegerRole) -> np.ndarray:
    dtype = argument.numpy_dtype
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = role.low, role.low + 2
        if dtype.itemsize == 1:
            low, high = role.low or int(limits.min), int(limits.max) + 1
        if role.high is not None:
            low, high = 0, min(role.high, int(limits.max) + 1)
        return generator.integers(low, high, argument.shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, argument.shape).astype(dtype)
    return generator.standard_normal(argument.shape).astype(dtype)


def summed(mod: IRModule) -> int:
    """The sum of the reduction lengths of an unscheduled module's blocks, at least 1."""
    total = 0
    for realize, _ in scheduled_blocks(mod):
        length = 1
        for axis in realize.block.iter_vars:
            extent = axis.dom.extent
            if int(axis.iter_type) == _REDUCE and isinstance(extent, tirx.IntImm):
                length *= int(extent)
        total += length if length > 1 else 0
    return max(total, 1)


def tolerance(dtype: np.dtype[Any], length: int) -> float:
    """Maximum deviation of an output that sums ``length`` terms; see ``deviation``.

    The rounding error of a reordered sum grows with the square root of the number of terms.
    Integers must be equal.
    """
    if dtype.kind in "iub":
        return 0.0
    finfo: Any = ml_dtypes.finfo
    return ROUNDINGS * float(finfo(dtype).eps) * math.sqrt(length)


MOVED_RUNS = 3
"""Runs with inputs perturbed up or down at random, besides one with all inputs perturbed up."""


def moved_arrays(
    arrays: Sequence[np.ndarray], tolerances: Sequence[float]
) -> list[list[np.ndarray]]:
    """Perturb the values of all arguments by about the rounding error of their sums.

    The relative perturbation is the finest tolerance divided by ``NOISE``, but at least the type's
    epsilon. Random signs perturb the terms of a sum independently; a common sign also moves a sum
    of positive numbers. Arguments of a coarser type than the finest stay unchanged: their sums are
    rounded less than the arguments themselves.
    """
    finest = min((one for one in tolerances if one), default=0.0)
    generator = np.random.default_rng(0)

    def moved(array: np.ndarray, upwards: bool) -> np.ndarray:
        wide = array if array.dtype.kind == "f" else array.astype(np.float32)
        finfo: Any = ml_dtypes.finfo
        rounding = max(finest / NOISE, float(finfo(array.dtype).eps))
        if upwards:
            return (wide * (1.0 + rounding)).astype(array.dtype)
        return moved_by_rounding(wide, generator, rounding).astype(array.dtype)

    return [
        [
            moved(array, upwards) if limit and limit == finest else array
            for array, limit in zip(arrays, tolerances, strict=True)
        ]
        for upwards in (True, *[False] * MOVED_RUNS)
    ]


def written_arguments(mod: IRModule) -> set[str]:
    """The names of the arguments that an unscheduled kernel writes."""
    func = mod["main"]
    written: set[Any] = set()
    structural_walk(func.body, (tirx.BufferStore, lambda store: written.add(store.buffer)))
    return {str(param.name) for param in func.params if param in written}
