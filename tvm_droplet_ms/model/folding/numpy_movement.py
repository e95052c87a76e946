# SPDX-License-Identifier: Apache-2.0
"""Slices, concatenations and paddings of constants with NumPy, as packed weights are made of."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..bindings import Expr, operator_name

Array = np.ndarray[Any, Any]

MOST_ZEROS = 1 << 14
"""Elements of a tensor of zeros that is worth storing: a first state, not a canvas."""


def tensor_operands(call: Expr) -> list[Expr]:
    """The operands of a call that are tensors.

    Those of a concatenation one by one; of a slice without its numbers.
    """
    name = operator_name(call)
    if name == "relax.concat" and hasattr(call.args[0], "fields"):
        return list(call.args[0].fields)
    if name == "relax.strided_slice":
        return list(call.args[:1])
    return list(call.args)


def moved(call: Expr, arrays: Sequence[Array]) -> Array | None:
    """Evaluate a call that moves elements.

    ``arrays``: its operands. Returns the result. None if this file does not know the operator.
    """
    evaluate = _EVALUATE.get(operator_name(call) or "")
    return None if evaluate is None else evaluate(call, arrays)


def _concatenated(call: Expr, arrays: Sequence[Array]) -> Array:
    axis = call.attrs.axis
    return np.concatenate(arrays, 0 if axis is None else int(axis))


def _sliced(call: Expr, arrays: Sequence[Array]) -> Array | None:
    numbers = [_numbers(argument) for argument in call.args[1:]]
    if any(each is None for each in numbers):
        return None
    axes, begin, end, *rest = (each or [] for each in numbers)
    steps = rest[0] if rest else [1] * len(axes)
    if min([*steps, *begin, *end], default=0) < 0 or 0 in steps:
        return None
    places = [slice(None)] * arrays[0].ndim
    for axis, low, high, step in zip(axes, begin, end, steps, strict=True):
        places[axis] = slice(low, high, step)
    return np.ascontiguousarray(arrays[0][tuple(places)])


def _numbers(argument: Expr) -> list[int] | None:
    """The values of a tuple of numbers, or None if they are not known."""
    fields = getattr(argument, "fields", None)
    values = [getattr(field, "value", field) for field in (fields or ())]
    known = fields is not None and all(isinstance(value, int) for value in values)
    return values if known else None


def _padded(call: Expr, arrays: Sequence[Array]) -> Array | None:
    attrs = call.attrs
    if str(attrs.pad_mode) != "constant":
        return None
    widths = [int(width) for width in attrs.pad_width]
    if min(widths, default=0) < 0:
        return None
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    return np.pad(arrays[0], pairs, constant_values=float(attrs.pad_value))


def _zeros(call: Expr, _arrays: Sequence[Array]) -> Array | None:
    extents = [getattr(extent, "value", None) for extent in call.args[0].values]
    known = [int(extent) for extent in extents if extent is not None]
    if len(known) < len(extents) or math.prod(known) > MOST_ZEROS:
        return None
    return np.zeros(known, str(call.ty.dtype))


_EVALUATE: dict[str, Callable[[Expr, Sequence[Array]], Array | None]] = {
    "relax.concat": _concatenated,
    "relax.strided_slice": _sliced,
    "relax.nn.pad": _padded,
    "relax.zeros": _zeros,
}
