# SPDX-License-Identifier: Apache-2.0
"""Kinds of integer inputs of a graph, such as indices, choices among values, and masks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule

from ..model.bindings import array_of, bound_values, operator_name, static_shape

MOST_CHOICES = 64
"""With more constants than this, an input is drawn from their whole range instead."""

_COPIES = {
    "relax." + name
    for name in (
        "reshape permute_dims squeeze expand_dims flatten strided_slice split broadcast_to repeat "
        "tile flip concat astype add subtract where maximum minimum clip mod floor_mod"
    ).split()
}
"""Operators that pass on indices. Importers add an extent to negative indices and clip indices. For
a circular cache, they take the remainder."""

_ORDERS = {f"relax.{name}" for name in ("less", "less_equal", "greater", "greater_equal")}

_EQUALITY = {"relax.equal", "relax.not_equal"}

_COMPARISONS = {*_ORDERS, *_EQUALITY, *(f"relax.logical_{name}" for name in ("and", "or", "not"))}

_DIVISIONS = {"relax." + name for name in ("divide", "floor_divide", "mod", "floor_mod")}
"""Operators whose second argument must not be 0."""

_MOST_DIVISOR = 9

_INDEXED = {
    "relax.take": 1,
    "relax.gather_elements": 1,
    "relax.gather_nd": 1,
    "relax.scatter_elements": 1,
    "relax.scatter_nd": 1,
    "relax.index_put": 1,
    "relax.index_tensor": 1,
}
"""Operators that read or write at indices, and the position of the index argument."""


@dataclass
class IntegerUse:
    """The use of an integer input.

    ``extent``: the smallest extent that it indexes; None if it is not an index. ``equals``: the
    constants that it is compared with for equality. ``is_mask``: whether it is compared, or is cast
    to floating point or boolean. ``divides``: whether integers are divided by it. ``most``: the
    largest number that it is compared with as a length; None if it is not a length.
    """

    extent: int | None = None
    equals: set[int] | None = None
    is_mask: bool = False
    divides: bool = False
    most: int | None = None

    def bound(self, extent: int) -> None:
        """Record the extent of an indexed axis."""
        self.extent = extent if self.extent is None else min(extent, self.extent)

    def random(self, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
        """Draw nonnegative integers.

        Indices are drawn from the whole extent. An input that is compared with constants is drawn
        from these, if one is above 1. A mask is 0 or 1, and 1 at the start of each row: masking a
        whole row gives NaN. Divisors are from 1 to 9, and lengths are at least 1. Anything else is
        0 or 1.
        """
        if self.divides:
            return generator.integers(1, _MOST_DIVISOR + 1, shape)
        if self.extent is not None:
            return generator.integers(0, self.extent, shape)
        if self.most is not None:
            return generator.integers(1, self.most + 2, shape)
        choices = sorted(each for each in self.equals or () if each >= 0)
        if choices and choices[-1] > 1:
            if len(choices) <= MOST_CHOICES:
                return np.asarray(generator.choice(choices, shape))
            return generator.integers(choices[0], choices[-1] + 1, shape)
        values = np.asarray(generator.integers(0, 2, shape))
        if self.is_mask and values.ndim > 1:
            values[..., :1] = 1
        return values


def integer_uses(mod: IRModule) -> list[IntegerUse]:
    """Return the use of each parameter of ``main``; it is empty for non-integer parameters."""
    function = mod["main"]
    uses = [IntegerUse() for _ in function.params]
    copies: dict[Any, set[int]] = {
        parameter: {number}
        for number, parameter in enumerate(function.params)
        if _is_integer(parameter)
    }
    values = bound_values(function)
    for block in function.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding):
                continue
            value = binding.value
            if isinstance(value, relax.Call):
                _look_at(value, copies, uses)
            index, extent = _counted_from_end(value, values)
            for number in copies.get(index, ()):
                uses[number].bound(extent)
            if _passes_on(value):
                sources = {number for each in _operands(value) for number in copies.get(each, ())}
                if sources:
                    copies[binding.var] = sources
    return uses


def _counted_from_end(value: Any, values: Mapping[Any, Any]) -> tuple[Any, int]:
    """Return an index that may be negative and the extent that is then added; or None and 0.

    Importers write this as ``where(index < 0, index + extent, index)``.
    """
    if operator_name(value) != "relax.where":
        return None, 0
    _, shifted, index = value.args
    added = values.get(shifted) if isinstance(shifted, relax.Var) else None
    if added is None or operator_name(added) != "relax.add" or not isinstance(index, relax.Var):
        return None, 0
    for one, other in (added.args, added.args[::-1]):
        array = array_of(other)
        if one.same_as(index) and array is not None and array.size == 1 and array.item() > 0:
            return index, int(array.item())
    return None, 0


def _look_at(call: Any, copies: dict[Any, set[int]], uses: list[IntegerUse]) -> None:
    """Record how a call uses copies of inputs."""
    name = operator_name(call)
    for position, argument in enumerate(call.args):
        for expr in argument.fields if isinstance(argument, relax.Tuple) else (argument,):
            for number in copies.get(expr, ()) if isinstance(expr, relax.Var) else ():
                _note(call, name, position, uses[number])


def _note(call: Any, name: str, position: int, use: IntegerUse) -> None:
    extent = _extent(call, name, position)
    if extent is not None:
        use.bound(extent)
    if name in _COMPARISONS:
        use.is_mask = True
    if name in _DIVISIONS and position == 1 and _is_integer(call):
        use.divides = True
    if name in _ORDERS:
        _note_length(call, position, use)
    if name == "relax.minimum":
        array = array_of(call.args[1 - position])
        if array is not None and array.size == 1:
            use.bound(int(array.item()) + 1)
    if name == "relax.astype" and not _is_integer(call):
        use.is_mask = True
    if name in _EQUALITY:
        array = array_of(call.args[1 - position])
        if array is not None:
            use.equals = (use.equals or set()) | set(array.reshape(-1).tolist())


def _note_length(call: Any, position: int, use: IntegerUse) -> None:
    """Record a length: it is compared with the numbers 0, 1, 2, and so on."""
    array = array_of(call.args[1 - position])
    if array is not None and array.size > 1 and np.array_equal(array.ravel(), range(array.size)):
        use.most = array.size - 1 if use.most is None else min(use.most, array.size - 1)


def _extent(call: Any, name: str, position: int) -> int | None:
    """Return the smallest extent that an argument indexes; None if it is not an index."""
    if name == "relax.one_hot" and position == 0:
        return int(call.attrs.depth)
    if _INDEXED.get(name) != position:
        return None
    shape = static_shape(call.args[0])
    if not shape:
        return None
    axis = getattr(call.attrs, "axis", None)
    extents = shape if axis is None else (shape[int(axis)],)
    return max(1, min(extents))


def _passes_on(value: Any) -> bool:
    if isinstance(value, relax.Var | relax.Tuple | relax.TupleGetItem):
        return True
    return operator_name(value) in _COPIES and _is_integer(value)


def _operands(value: Any) -> Iterator[Any]:
    """Yield the variables that a value copies."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Tuple):
        for each in value.fields:
            yield from _operands(each)
    elif isinstance(value, relax.TupleGetItem):
        yield from _operands(value.tuple_value)
    elif isinstance(value, relax.Call):
        # The condition of ``where`` is not copied.
        for each in value.args[1:] if operator_name(value) == "relax.where" else value.args:
            yield from _operands(each)


def _is_integer(expr: Any) -> bool:
    kind = getattr(expr, "ty", None)
    if isinstance(kind, relax.TupleType):
        kind = kind.fields[0] if len(kind.fields) else None
    return isinstance(kind, relax.TensorType) and "int" in str(kind.dtype)
