# SPDX-License-Identifier: Apache-2.0
"""Reads attributes of Relax calls as plain Python values."""

from collections.abc import Callable
from typing import Any

from tvm import relax, tirx
from tvm_droplet_ms.model.bindings import Expr

from ..equality.language import Operator

Operands = list[Expr]
Reader = Callable[[relax.Call], Operator]
Writer = Callable[[Operator, Operands], Expr]


class NotRead(Exception):
    """A call has a form that the rules do not support. It becomes an opaque operator."""


def ints(values: Any) -> tuple[int, ...]:
    """Convert constant integers. Raises ``NotRead`` if a value is not constant."""
    if isinstance(values, relax.Tuple):
        values = values.fields
    if not all(isinstance(value, int | tirx.IntImm) for value in values):
        raise NotRead
    return tuple(int(value) for value in values)


def number(expr: Any) -> float:
    """Convert a constant number. Raises ``NotRead`` if it is not constant."""
    if not isinstance(expr, tirx.IntImm | tirx.FloatImm | int | float):
        raise NotRead
    return float(getattr(expr, "value", expr))


def positive(axis: Any, rank: int) -> int:
    """Normalize an axis to a nonnegative index."""
    return int(axis) % rank


def axes_in(values: Any, rank: int) -> tuple[int, ...]:
    """Normalize axes to nonnegative indices. None: all axes."""
    return tuple(range(rank)) if values is None else tuple(v % rank for v in ints(values))


def shape_of(expr: Expr) -> tuple[int, ...]:
    """The shape of a tensor."""
    return ints(expr.ty.shape)


def rank_of(expr: Expr) -> int:
    """The number of axes of a tensor."""
    return len(shape_of(expr))


def require(condition: bool) -> None:
    """Raise ``NotRead`` unless a condition holds."""
    if not condition:
        raise NotRead
