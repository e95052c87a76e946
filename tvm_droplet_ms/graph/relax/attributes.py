# SPDX-License-Identifier: Apache-2.0
"""Attributes of Relax calls as plain values."""

from collections.abc import Callable
from typing import Any

from tvm import relax, tirx

from ...model.bindings import Expr
from ..equality.language import Operator

Operands = list[Expr]
Reader = Callable[[relax.Call], Operator]
Writer = Callable[[Operator, Operands], Expr]


class NotRead(Exception):
    """A call in a form that rules do not know. It is kept whole."""


def ints(values: Any) -> tuple[int, ...]:
    """Integers that are known."""
    if isinstance(values, relax.Tuple):
        values = values.fields
    if not all(isinstance(value, int | tirx.IntImm) for value in values):
        raise NotRead
    return tuple(int(value) for value in values)


def number(expr: Any) -> float:
    """A number that is known."""
    if not isinstance(expr, tirx.IntImm | tirx.FloatImm | int | float):
        raise NotRead
    return float(getattr(expr, "value", expr))


def positive(axis: Any, rank: int) -> int:
    """An axis, counted from the first."""
    return int(axis) % rank


def axes_in(values: Any, rank: int) -> tuple[int, ...]:
    """Axes, counted from the first; all where none are given."""
    return tuple(range(rank)) if values is None else tuple(v % rank for v in ints(values))


def shape_of(expr: Expr) -> tuple[int, ...]:
    """The shape of a tensor."""
    return ints(expr.ty.shape)


def rank_of(expr: Expr) -> int:
    """The number of axes of a tensor."""
    return len(shape_of(expr))


def require(condition: bool) -> None:
    """Keep a call whole unless something holds."""
    if not condition:
        raise NotRead
