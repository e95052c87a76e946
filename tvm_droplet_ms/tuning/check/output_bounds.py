# SPDX-License-Identifier: Apache-2.0
"""Outputs of a graph that result from functions with a bounded range, or are quantized.

Libraries compute functions with a bounded range to an absolute error, not to a relative one: a
library may return 0 for the sigmoid of -18. The values of a quantized output differ by whole steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule

from ...measure.deviation import ROW
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
"""The largest magnitude of an operator's values, by operator name."""

_MOVES = {
    "relax." + name
    for name in (
        "reshape permute_dims squeeze expand_dims flatten strided_slice split broadcast_to repeat "
        "tile flip take gather_elements gather_nd astype max min mean abs negative clip"
    ).split()
}
"""Operators whose values do not exceed the magnitudes of their first argument."""

_ELEMENTWISE = {"relax.astype", "relax.abs", "relax.negative", "relax.clip"}
"""The operators in ``_MOVES`` that keep each element in its place."""

_COMBINED = {"relax.multiply", "relax.add", "relax.subtract"}
"""Operators whose values are bounded if both arguments are."""

_RESHAPES = {
    f"relax.{name}"
    for name in "reshape permute_dims squeeze expand_dims flatten strided_slice".split()
}
"""Operators that keep the values of quantized outputs."""


@dataclass(frozen=True)
class Bound:
    """The largest possible magnitude of an output's elements, from the functions that compute it.

    ``magnitude``: broadcasts with the output; 0 for elements without a bounded function.
    ``of_row``: whether it is a multiple of the row's largest element: the error of a softmax is
    relative to that element.
    """

    magnitude: "np.ndarray[Any, Any]"
    of_row: bool = False

    def floor(self, expected: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        """Return the magnitude whose rounding is always allowed; broadcasts with the output."""
        if not self.of_row:
            return self.magnitude
        wide = np.asarray(expected, dtype=np.float64)
        sizes = np.where(np.isfinite(wide), np.abs(wide), 0.0)
        long = [axis for axis, extent in enumerate(sizes.shape) if extent >= ROW]
        top = sizes.max(axis=long[-1] if long else None, keepdims=True, initial=0.0)
        return np.asarray(self.magnitude * top)

    def moved(self) -> "Bound":
        """Return the bound after elements change places."""
        return Bound(self.magnitude.min(initial=np.inf, keepdims=False), self.of_row)


def output_bounds(mod: IRModule) -> tuple[Bound | None, ...]:
    """Return the bound of each output of ``main``; None for outputs without a bounded function."""
    return _Bounds(mod["main"]).of_outputs


def leaves(expr: Any, value_of: Callable[[Any], Any]) -> list[Any]:
    """Return the tensors of a result in the order of the model's outputs."""
    value = value_of(expr)
    if isinstance(value, relax.Tuple):
        return [leaf for each in value.fields for leaf in leaves(each, value_of)]
    kind = getattr(value, "ty", None)
    if isinstance(kind, relax.TupleType):
        return [leaf for n in range(len(kind.fields)) for leaf in _leaves_of(value, n, kind)]
    return [value]


def _leaves_of(value: Any, number: int, kind: Any) -> list[Any]:
    """Return a tuple-valued call once for each tensor of one of its fields."""
    field = kind.fields[number]
    return [value] * (len(field.fields) if isinstance(field, relax.TupleType) else 1)


class _Bounds:
    """The bounds of the variables that a function's outputs depend on.

    They are computed iteratively, once per variable: a model may be a chain of thousands of
    operators, or use a value twice at every step.
    """

    def __init__(self, function: relax.Function) -> None:
        self._values = bound_values(function)
        outputs = leaves(function.body.body, self._value_of)
        needed = {source for leaf in outputs for source in self._sources(leaf)}
        for variable in reversed(self._values):
            if variable in needed:
                needed.update(self._sources(self._values[variable]))
        self._found: dict[Any, Bound | None] = {}
        for variable, value in self._values.items():
            if variable in needed:
                self._found[variable] = self._bound(value)
        self.of_outputs = tuple(self._bound(leaf) for leaf in outputs)

    def _value_of(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var) and expr in self._values:
            expr = self._values[expr]
        return expr

    def _of(self, expr: Any) -> Bound | None:
        return self._found.get(expr) if isinstance(expr, relax.Var) else None

    def _sources(self, value: Any) -> list[relax.Var]:
        """Return the variables whose bounds determine the bound of a value."""
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
        """Return the operands of a concatenation."""
        parts = self._value_of(value.args[0])
        return list(parts.fields) if isinstance(parts, relax.Tuple) else []

    def _bound(self, value: Any) -> Bound | None:
        """Return the bound of a value whose sources already have bounds."""
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
        """Return the bound of a concatenation: each part keeps its own bound."""
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
        """Return the elementwise bound of a sum or product of bounded values and constants."""
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
        # A sum has a bound only where both parts have one.
        has_bound = [np.ones(()) if bound is None else bound.magnitude > 0 for bound in made]
        return Bound(np.where(has_bound[0] * has_bound[1], both[0] + both[1], 0.0))


def _magnitudes(value: Any) -> "np.ndarray[Any, Any] | None":
    """Return the magnitudes of a constant, with 0 for non-finite ones; None for other values."""
    array = array_of(value)
    if array is None:
        return None
    wide = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(wide), wide, 0.0)


def output_steps(mod: IRModule) -> tuple[float | None, ...]:
    """Return the step of each output of ``main``; None if it is not quantized.

    An 8-bit integer that was rounded from a number has a step of 1. A value dequantized from such
    an integer has its scale as the step.
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
    """Return whether 8-bit integers are numbers that were rounded and clipped to their range."""
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
