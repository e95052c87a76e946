# SPDX-License-Identifier: Apache-2.0
"""Rewrites vectorized loops as vector expressions, for instructions without a TVM operator."""

from collections.abc import Mapping, Sequence
from typing import Any

from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_map, structural_walk

from tvm import tirx
from tvm.ir import Range
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import BufferStore, For, IntImm, Var

LANES = 16
"""Number of float32 lanes in a vector."""

_ELEMENTWISE = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max, tirx.LShift, tirx.RShift,
    tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE, tirx.And, tirx.Or,
)  # fmt: skip

_CALLS = {f"tirx.{name}" for name in "reinterpret exp tanh sqrt round floor fabs".split()}


class UnknownError(Exception):
    """Raised when an expression has no vector form in this module."""


class LaneVector:
    """The vector form of a loop: its block computed in all lanes at once.

    - ``loop``: a loop of ``LANES`` iterations around a block that consists of one store.
    - ``analyzer``: an analyzer with the ranges of all loops.
    - ``outer``: values to substitute for variables of outer loops.

    All methods raise ``UnknownError`` if an expression has no vector form.
    """

    def __init__(
        self, loop: For, analyzer: Analyzer, outer: Mapping[Var, Any] | None = None
    ) -> None:
        realize = loop.body
        self._lane, self._analyzer = loop.loop_var, analyzer
        values = [_substituted(value, outer or {}) for value in realize.iter_values]
        axes = zip(realize.block.iter_vars, values, strict=True)
        self._axes = {axis.var: value for axis, value in axes}
        self._block = realize.block
        self.name = str(realize.block.name_hint)
        self.store: BufferStore = realize.block.body
        self.predicate = realize.predicate

    def of(self, value: Any) -> Any:
        """Return the vector form of an expression of the block."""
        found = self._vector(_substituted(value, self._axes))
        if self._mentions(found):
            raise UnknownError
        return found

    def places(self) -> list[Any]:
        """Return the store indices of the first lane; the other lanes follow contiguously."""
        return self._first(self.store.indices)

    def reads(self) -> list[Any]:
        """Return the regions that all lanes together read."""
        found = []
        for region in self._block.reads:
            ranges = []
            for each in region.region:
                start = _substituted(each.min, self._axes)
                low, high = (self._at(start, lane) for lane in (0, LANES - 1))
                grown = self._analyzer.simplify(high - low)
                if not isinstance(grown, IntImm) or not isinstance(each.extent, IntImm):
                    raise UnknownError
                count = tirx.const(int(grown) + int(each.extent), str(low.ty.dtype))
                ranges.append(Range.from_min_extent(low, count))
            found.append(tirx.BufferRegion(region.source, ranges))
        return found

    def _at(self, value: Any, lane: int) -> Any:
        number = tirx.const(lane, str(self._lane.ty.dtype))
        return self._analyzer.simplify(_substituted(value, {self._lane: number}))

    def _first(self, indices: Sequence[Any]) -> list[Any]:
        """Return the indices of the first lane; lanes must be contiguous along the last axis."""
        found = [_substituted(index, self._axes) for index in indices]
        low = [self._at(index, 0) for index in found]
        grown = [
            self._analyzer.simplify(index - base) for index, base in zip(found, low, strict=True)
        ]
        lane = self._analyzer.simplify(self._lane)
        if any(self._mentions(each) for each in grown[:-1]):
            raise UnknownError
        if not structural_equal(grown[-1], lane):
            raise UnknownError
        return low

    def _mentions(self, value: Any) -> bool:
        return mentions(value, self._lane)

    def _vector(self, value: Any) -> Any:
        """Build the vector form of an expression over the loop variable."""
        if not self._mentions(value):
            return tirx.Broadcast(value, LANES)
        if value.same_as(self._lane):
            zero, one = (tirx.const(n, str(value.ty.dtype)) for n in (0, 1))
            return tirx.Ramp(zero, one, LANES)
        if isinstance(value, TensorLoad):
            places = [self._analyzer.simplify(each) for each in value.indices]
            if not any(map(self._mentions, places)):
                return tirx.Broadcast(tirx.BufferLoad(value.source, places), LANES)
            *outer, last = self._first(value.indices)
            one = tirx.const(1, str(last.ty.dtype))
            return tirx.BufferLoad(value.source, [*outer, tirx.Ramp(last, one, LANES)])
        if isinstance(value, _ELEMENTWISE):
            return type(value)(self._vector(value.a), self._vector(value.b))
        if isinstance(value, tirx.Cast):
            return tirx.Cast(_lanes_of(value), self._vector(value.value))
        if isinstance(value, tirx.Select):
            return tirx.Select(
                *map(self._vector, (value.condition, value.true_value, value.false_value))
            )
        if isinstance(value, Call) and str(getattr(value.op, "name", "")) in _CALLS:
            return tirx.call_intrin(_lanes_of(value), value.op, *map(self._vector, value.args))
        raise UnknownError


def mentions(value: Any, variable: Var) -> bool:
    """Return whether an expression or a statement contains a variable."""
    found: list[Any] = []
    structural_walk(value, (Var, found.append))
    return any(each.same_as(variable) for each in found)


def _lanes_of(value: Any) -> str:
    return f"{value.ty.dtype}x{LANES}"


def _substituted(value: Any, variables: Mapping[Var, Any]) -> Any:
    if not variables:
        return value
    return structural_map(value, (Var, lambda each: variables.get(each, each)))
