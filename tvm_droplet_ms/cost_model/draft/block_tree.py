# SPDX-License-Identifier: Apache-2.0
"""The blocks of a scheduled module with the loops around them, and intervals of their indices."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import tirx
from tvm.ir import IRModule

from ..features.loop_context import scheduled_blocks
from .extents import Interval, Intervals


class NotUnderstood(Exception):
    """The loop extents of a schedule are not known to follow from its decisions."""


@dataclass
class Loop:
    """A loop of the module: its TVM variable and its extent."""

    variable: Any
    extent: int


@dataclass
class Block:
    """A block without nested blocks.

    ``realize``: TVM's ``SBlockRealize``. ``loops``: the loops around it, the outermost first.
    """

    realize: Any
    loops: tuple[Loop, ...]

    @cached_property
    def name(self) -> str:
        """The name of the block."""
        return str(self.realize.block.name_hint)

    @cached_property
    def axes(self) -> list[Any]:
        """The axes of the block, as ``IterVar``."""
        return list(self.realize.block.iter_vars)

    @cached_property
    def variables(self) -> list[Any]:
        """The variables of the axes."""
        return [axis.var for axis in self.axes]

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of the axes."""
        return [integer(axis.dom.extent) for axis in self.axes]

    @cached_property
    def writes(self) -> list[Any]:
        """The regions that the block writes."""
        return list(self.realize.block.writes)

    @cached_property
    def reads(self) -> list[Any]:
        """The regions that the block reads."""
        return list(self.realize.block.reads)


@dataclass(frozen=True)
class BlockTree:
    """The blocks and loops of a module.

    ``blocks``: the blocks without nested blocks. ``loops``: all loops around them, each once. Both
    are in the order of the module.
    """

    blocks: list[Block]
    loops: list[Loop]

    def find(self, variable: Any) -> Loop | None:
        """The loop of a TVM variable; None if the module has no such loop."""
        return next((loop for loop in self.loops if loop.variable.same_as(variable)), None)


def read_blocks(mod: IRModule) -> BlockTree:
    """Read the blocks of a module. Raises ``NotUnderstood`` if an extent is not constant."""
    loops: list[tuple[Any, Loop]] = []

    def ours(theirs: Any) -> Loop:
        for known, loop in loops:
            if known.same_as(theirs):
                return loop
        loop = Loop(theirs.loop_var, integer(theirs.extent))
        loops.append((theirs, loop))
        return loop

    blocks = [Block(realize, tuple(map(ours, around))) for realize, around in scheduled_blocks(mod)]
    return BlockTree(blocks, [loop for _, loop in loops])


def integer(value: Any) -> int:
    """The value of a constant expression. Raises ``NotUnderstood`` for any other."""
    if isinstance(value, int | tirx.IntImm):
        return int(value)
    raise NotUnderstood(f"the extent {value}, which is not constant")


def index_interval(index: Any, axis: Callable[[Any], Interval], intervals: Intervals) -> Interval:
    """The interval of an index whose axes vary independently.

    ``index``: a ``PrimExpr`` of a block's axes. ``axis``: gives the interval of an axis variable.
    ``intervals``: does the arithmetic. Raises ``NotUnderstood`` for an unsupported expression, such
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
        raise NotUnderstood(f"an index with {type(expr).__name__}")

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
    raise NotUnderstood(f"the product or quotient with {expr}")
