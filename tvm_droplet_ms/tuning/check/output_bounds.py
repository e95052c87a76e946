# SPDX-License-Identifier: Apache-2.0
"""Outputs of a graph that functions of a bounded range made, and those that are quantized.

Such functions are computed to an absolute error, not to a relative one: of a sigmoid of -18, a
library may make 0. The values of a quantized output differ by whole steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule

from ...deviation import ROW
from ...model.bindings import Bindings, array_of, bound_values, operator_name, static_shape
from ...model.integers.quantized_values import BYTES, quantized

BOUNDED = {
    "relax.sigmoid": 1.0,
    "relax.tanh": 1.0,
    "relax.erf": 1.0,
    "relax.sin": 1.0,
    "relax.cos": 1.0,
    "relax.nn.softmax": 1.0,
}
"""Operators by name, and the largest magnitude of their values."""

_MOVES = {
    "relax." + name
    for name in (
        "reshape permute_dims squeeze expand_dims flatten strided_slice split broadcast_to repeat "
        "tile flip take gather_elements gather_nd astype max min mean abs negative clip"
    ).split()
}
"""Operators whose values are no larger than those of their first argument."""

_ELEMENTWISE = {"relax.astype", "relax.abs", "relax.negative", "relax.clip"}
"""Those of them that keep each element in its place."""

_COMBINED = {"relax.multiply", "relax.add", "relax.subtract"}
"""Operators whose values are bounded where both arguments are."""

_RESHAPES = {
    f"relax.{name}"
    for name in "reshape permute_dims squeeze expand_dims flatten strided_slice".split()
}
"""Operators that keep the values of quantized outputs."""


@dataclass(frozen=True)
class Bound:
    """The largest magnitude that the elements of an output can have by its making.

    ``magnitude``: broadcasts with the output; 0 where no function of a bounded range made an
    element. ``of_row``: whether it counts in times of the row's largest element: the error of a
    softmax is relative to that.
    """

    magnitude: "np.ndarray[Any, Any]"
    of_row: bool = False

    def floor(self, expected: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        """The magnitude whose rounding an output may have in any case; broadcasts with it."""
        if not self.of_row:
            return self.magnitude
        wide = np.asarray(expected, dtype=np.float64)
        sizes = np.where(np.isfinite(wide), np.abs(wide), 0.0)
        long = [axis for axis, extent in enumerate(sizes.shape) if extent >= ROW]
        top = sizes.max(axis=long[-1] if long else None, keepdims=True, initial=0.0)
        return np.asarray(self.magnitude * top)

    def moved(self) -> "Bound":
        """The bound where elements have changed places."""
        return Bound(self.magnitude.min(initial=np.inf, keepdims=False), self.of_row)


def output_bounds(mod: IRModule) -> tuple[Bound | None, ...]:
    """The bound of each output of ``main``; None where no function of a bounded range made it."""
    return _Bounds(mod["main"]).of_outputs()


def leaves(expr: Any, value_of: Callable[[Any], Any]) -> list[Any]:
    """The tensors of a result, in the order in which they come out of the model."""
    value = value_of(expr)
    if isinstance(value, relax.Tuple):
        return [leaf for each in value.fields for leaf in leaves(each, value_of)]
    kind = getattr(value, "ty", None)
    if isinstance(kind, relax.TupleType):
        return [leaf for n in range(len(kind.fields)) for leaf in _leaves_of(value, n, kind)]
    return [value]


def _leaves_of(value: Any, number: int, kind: Any) -> list[Any]:
    """A field of a call that returns a tuple, as often as it has tensors."""
    field = kind.fields[number]
    return [value] * (len(field.fields) if isinstance(field, relax.TupleType) else 1)


class _Bounds:
    """The bounds of the variables of a function that its outputs depend on, one after the other.

    A model may be a chain of thousands of operators, or use a value twice at every step.
    """

    def __init__(self, function: relax.Function) -> None:
        self._values = bound_values(function)
        self._leaves = leaves(function.body.body, self._value_of)
        needed = {source for leaf in self._leaves for source in self._sources(leaf)}
        for variable in reversed(self._values):
            if variable in needed:
                needed.update(self._sources(self._values[variable]))
        self._found: dict[Any, Bound | None] = {}
        for variable, value in self._values.items():
            if variable in needed:
                self._found[variable] = self._bound(value)

    def of_outputs(self) -> tuple[Bound | None, ...]:
        """The bound of each output."""
        return tuple(self._bound(leaf) for leaf in self._leaves)

    def _value_of(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var) and expr in self._values:
            expr = self._values[expr]
        return expr

    def _of(self, expr: Any) -> Bound | None:
        return self._found.get(expr) if isinstance(expr, relax.Var) else None

    def _sources(self, value: Any) -> list[relax.Var]:
        """The variables whose bounds that of a value follows from."""
        found: Sequence[Any] = ()
        name = operator_name(value)
        if isinstance(value, relax.Var):
            found = [value]
        elif isinstance(value, relax.TupleGetItem):
            found = [value.tuple_value]
        elif name in _MOVES:
            found = value.args[:1]
        elif name in _COMBINED:
            found = value.args
        elif name == "relax.concat":
            found = self._parts(value)
        return [each for each in found if isinstance(each, relax.Var)]

    def _parts(self, value: Any) -> Sequence[Any]:
        """What a concatenation joins."""
        parts = self._value_of(value.args[0])
        return list(parts.fields) if isinstance(parts, relax.Tuple) else []

    def _bound(self, value: Any) -> Bound | None:
        """The bound of a value, whose sources have theirs."""
        name = operator_name(value)
        if name in BOUNDED:
            return Bound(np.array(BOUNDED[name]), of_row=name == "relax.nn.softmax")
        if name == "relax.concat":
            return self._concatenated(value)
        if name in _COMBINED:
            return self._combined(name, value)
        sources = self._sources(value)
        source = self._of(sources[0]) if sources else None
        moves = name in _MOVES and name not in _ELEMENTWISE
        return source.moved() if source is not None and moves else source

    def _concatenated(self, value: Any) -> Bound | None:
        """Each part keeps its own bound."""
        shape, fields = static_shape(value), self._parts(value)
        bounds = [self._of(field) for field in fields]
        shapes = [static_shape(field) for field in fields]
        if all(bound is None for bound in bounds) or shape is None or None in shapes:
            return None
        axis = int(value.attrs.axis) % len(shape)
        of_row = all(bound is not None and bound.of_row for bound in bounds)
        magnitudes = [
            0.0 if bound is None or bound.of_row != of_row else float(bound.moved().magnitude)
            for bound in bounds
        ]
        extents = [each[axis] for each in shapes if each is not None]
        along = [1] * len(shape)
        along[axis] = shape[axis]
        return Bound(np.repeat(magnitudes, extents).reshape(along), of_row)

    def _combined(self, name: str, value: Any) -> Bound | None:
        """A sum or a product of what is bounded, or of that and a constant, by elements."""
        made = [self._of(argument) for argument in value.args]
        both = [
            _magnitudes(self._value_of(argument)) if bound is None else bound.magnitude
            for bound, argument in zip(made, value.args, strict=True)
        ]
        of_row = any(bound is not None and bound.of_row for bound in made)
        is_product = name == "relax.multiply"
        if made == [None, None] or both[0] is None or both[1] is None:
            return None
        if is_product:
            return Bound(both[0] * both[1], of_row)
        if of_row:
            return None
        # Where a part has no bound, the sum has none.
        has_bound = [np.ones(()) if bound is None else bound.magnitude > 0 for bound in made]
        return Bound(np.where(has_bound[0] * has_bound[1], both[0] + both[1], 0.0))


def _magnitudes(value: Any) -> "np.ndarray[Any, Any] | None":
    """Those of a constant, 0 for what is not finite; None for anything else."""
    array = array_of(value)
    if array is None:
        return None
    wide = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(wide), wide, 0.0)


def output_steps(mod: IRModule) -> tuple[float | None, ...]:
    """The step of each output of ``main``; None where it is not quantized.

    A byte that is the rounding of a number has a step of 1, and what such a byte is dequantized to
    that of its scale.
    """
    function = mod["main"]
    if not function.body.blocks:
        return ()
    bindings = Bindings(function.body.blocks[0], {})
    bindings.values = bound_values(function)
    return tuple(_step(bindings, leaf) for leaf in leaves(function.body.body, bindings.value_of))


def _step(bindings: Bindings, expr: Any) -> float | None:
    value = bindings.value_of(expr)
    while operator_name(value) in _RESHAPES:
        value = bindings.value_of(value.args[0])
    tensor = quantized(bindings, value) if isinstance(value, relax.Call) else None
    if tensor is not None:
        scale = tensor.scale
        is_rounded = _is_rounded(bindings, tensor.data)
        return abs(float(scale)) if scale is not None and is_rounded else None
    return 1.0 if _is_rounded(bindings, value) else None


def _is_rounded(bindings: Bindings, expr: Any) -> bool:
    """True if bytes are numbers that were rounded and clipped to their range."""
    value = bindings.value_of(expr)
    while operator_name(value) in _RESHAPES:
        value = bindings.value_of(value.args[0])
    if operator_name(value) != "relax.astype" or str(value.ty.dtype) not in BYTES:
        return False
    clip = bindings.call_of(value.args[0], "relax.clip")
    if clip is None:
        return False
    added = bindings.call_of(clip.args[0], "relax.add")
    rounded = clip.args[0] if added is None else added.args[0]
    return bindings.call_of(rounded, "relax.round") is not None
