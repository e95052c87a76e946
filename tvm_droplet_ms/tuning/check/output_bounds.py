# SPDX-License-Identifier: Apache-2.0
"""Bounds of the outputs of a graph that functions of a bounded range made.

Such functions are computed to an absolute error, not to a relative one: of a sigmoid of -18, a
library may make 0.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule

from ...model.bindings import array_of, operator_name

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

Bound = float | None


def output_bounds(mod: IRModule) -> tuple[Bound, ...]:
    """The largest magnitude that each output of ``main`` can have by its making.

    Parameters
    ----------
    mod : IRModule
        A module with a Relax function ``main``.

    Returns
    -------
    bounds : tuple[float | None, ...]
        For each output, those of nested tuples one after the other. A concatenation has that of its
        bounded parts. None where no function of a bounded range made it.
    """
    function = mod["main"]
    values: dict[Any, Any] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            if isinstance(binding, relax.VarBinding):
                values[binding.var] = binding.value

    def value_of(expr: Any) -> Any:
        while isinstance(expr, relax.Var) and expr in values:
            expr = values[expr]
        return expr

    return tuple(_bound(leaf, value_of) for leaf in _leaves(function.body.body, value_of))


def _leaves(expr: Any, value_of: Callable[[Any], Any]) -> list[Any]:
    """The tensors of a result, in the order in which they come out of the model."""
    value = value_of(expr)
    if isinstance(value, relax.Tuple):
        return [leaf for each in value.fields for leaf in _leaves(each, value_of)]
    kind = getattr(value, "ty", None)
    if isinstance(kind, relax.TupleType):
        return [leaf for n in range(len(kind.fields)) for leaf in _leaves_of(value, n, kind)]
    return [value]


def _leaves_of(value: Any, number: int, kind: Any) -> list[Any]:
    """A field of a call that returns a tuple, as often as it has tensors."""
    field = kind.fields[number]
    return [value] * (len(field.fields) if isinstance(field, relax.TupleType) else 1)


def _bound(expr: Any, value_of: Callable[[Any], Any]) -> Bound:
    value = value_of(expr)
    if isinstance(value, relax.TupleGetItem):
        return _bound(value.tuple_value, value_of)
    name = operator_name(value)
    if name in BOUNDED:
        return BOUNDED[name]
    if name in _MOVES:
        return _bound(value.args[0], value_of)
    if name == "relax.concat":
        parts = value_of(value.args[0])
        fields = parts.fields if isinstance(parts, relax.Tuple) else ()
        return max(
            (bound for field in fields if (bound := _bound(field, value_of)) is not None),
            default=None,
        )
    if name in ("relax.multiply", "relax.add", "relax.subtract"):
        made = [_bound(argument, value_of) for argument in value.args]
        both = [
            _largest(value_of(argument)) if bound is None else bound
            for bound, argument in zip(made, value.args, strict=True)
        ]
        if made == [None, None] or both[0] is None or both[1] is None:
            return None
        return both[0] * both[1] if name == "relax.multiply" else both[0] + both[1]
    return None


def _largest(value: Any) -> Bound:
    """The largest magnitude of a constant; None for anything else."""
    array = array_of(value)
    return None if array is None else float(np.abs(array.astype(np.float64)).max(initial=0.0))
