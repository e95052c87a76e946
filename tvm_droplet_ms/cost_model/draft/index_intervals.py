# SPDX-License-Identifier: Apache-2.0
"""Intervals of TVM's index expressions, over extents that are expressions themselves."""

from collections.abc import Callable
from typing import Any

from tvm import tirx

from .extents import Interval, Intervals


class UnknownIndex(Exception):
    """An index expression without a known interval."""


def index_interval(index: Any, axis: Callable[[Any], Interval], intervals: Intervals) -> Interval:
    """The interval of an index whose axes vary independently.

    ``index``: a ``PrimExpr`` of a block's axes. ``axis``: gives the interval of an axis variable.
    ``intervals``: does the arithmetic. Raises ``UnknownIndex`` for an unsupported expression, such
    as the load of a gather; the message names its kind.
    """

    def visit(expr: Any) -> Interval:
        if isinstance(expr, tirx.IntImm):
            return intervals.constant(int(expr))
        if isinstance(expr, tirx.Var):
            return axis(expr)
        if isinstance(expr, tirx.Cast):
            return visit(expr.value)
        if isinstance(expr, tirx.Add):
            return intervals.add(visit(expr.a), visit(expr.b))
        if isinstance(expr, tirx.Sub):
            return intervals.add(visit(expr.a), intervals.scale(visit(expr.b), -1))
        if isinstance(expr, tirx.Mul):
            return intervals.scale(visit(expr.a), _constant(expr.b))
        if isinstance(expr, tirx.FloorDiv):
            return intervals.floor_divide(visit(expr.a), _constant(expr.b))
        if isinstance(expr, tirx.FloorMod):
            return intervals.floor_modulo(visit(expr.a), _constant(expr.b))
        if isinstance(expr, tirx.Min):
            return intervals.least(visit(expr.a), visit(expr.b))
        if isinstance(expr, tirx.Max):
            return intervals.greatest(visit(expr.a), visit(expr.b))
        raise UnknownIndex(f"an index with {type(expr).__name__}")

    return visit(index)


def linear_coefficient(index: Any, variable: Any) -> int:
    """The coefficient of a variable in an index, as TVM's ``StrideExtractor`` finds it.

    Only sums and products with constants are searched. Returns 0 if there is no coefficient.
    """
    if isinstance(index, tirx.Var):
        return int(index.same_as(variable))
    if isinstance(index, tirx.Mul):
        for factor, other in ((index.a, index.b), (index.b, index.a)):
            if isinstance(factor, tirx.IntImm):
                return int(factor) * linear_coefficient(other, variable)
    if isinstance(index, tirx.Add):
        parts = [linear_coefficient(part, variable) for part in (index.a, index.b)]
        return min(filter(None, parts), default=0)
    return 0


def _constant(expr: Any) -> int:
    if isinstance(expr, tirx.IntImm):
        return int(expr)
    raise UnknownIndex(f"the product or quotient with {expr}")
