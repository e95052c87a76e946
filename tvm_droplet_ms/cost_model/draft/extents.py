# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on the decisions of many points at once.

The decisions of a schedule determine its loops: the extent of a tiled loop is an entry of a
decision, and all other extents are sums, products and minima of extents. A tape records each such
expression once, and evaluates all of them for thousands of points in a few NumPy operations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

Node = int
"""The number of an expression on a tape."""

CHUNK = 4096
"""Points evaluated at once: a chunk of all expressions fits in the last-level cache."""

_OPERATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "least": np.minimum,
    "greatest": np.maximum,
    "floor_divide": np.floor_divide,
    "modulo": np.mod,
    "equal": np.equal,
}


class Tape:
    """Expressions over the entries of decisions, in evaluation order.

    Values are integers held as float64: exact up to 2**53. The methods that take nodes return the
    node of the result. Equal expressions share one node, and constant expressions are folded.
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[str, int, int]] = []
        self._tables: list[np.ndarray] = []
        self._numbers: dict[tuple[str, int, int], Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def _node(self, operation: str, first: int, second: int = 0) -> Node:
        key = (operation, first, second)
        if key not in self._numbers:
            self._numbers[key] = len(self._nodes)
            self._nodes.append(key)
        return self._numbers[key]

    def constant(self, value: int) -> Node:
        """An integer."""
        return self._node("constant", int(value))

    def entry(self, column: int) -> Node:
        """An entry of the decisions, by its position in a point."""
        return self._node("entry", column)

    def table(self, column: int, values: Sequence[float]) -> Node:
        """A table lookup: one value for each value of an entry, which counts from 0."""
        self._tables.append(np.asarray(values, dtype=float))
        return self._node("table", column, len(self._tables) - 1)

    def value(self, node: Node) -> int | None:
        """The value of a constant; None for an expression that depends on the decisions."""
        operation, first, _ = self._nodes[node]
        return first if operation == "constant" else None

    def _binary(self, operation: str, first: Node, second: Node) -> Node:
        values = self.value(first), self.value(second)
        if values[0] is not None and values[1] is not None:
            folded = _OPERATIONS[operation](np.array(values[0]), np.array(values[1]))
            return self.constant(int(folded))
        return self._node(operation, first, second)

    def add(self, first: Node, second: Node) -> Node:
        """The sum."""
        if self.value(first) == 0:
            return second
        return first if self.value(second) == 0 else self._commuting("add", first, second)

    def subtract(self, first: Node, second: Node) -> Node:
        """The difference."""
        return first if self.value(second) == 0 else self._binary("subtract", first, second)

    def multiply(self, first: Node, second: Node) -> Node:
        """The product."""
        if 0 in (self.value(first), self.value(second)):
            return self.constant(0)
        if self.value(first) == 1:
            return second
        return first if self.value(second) == 1 else self._commuting("multiply", first, second)

    def least(self, first: Node, second: Node) -> Node:
        """The smaller of both."""
        return first if first == second else self._commuting("least", first, second)

    def greatest(self, first: Node, second: Node) -> Node:
        """The larger of both."""
        return first if first == second else self._commuting("greatest", first, second)

    def floor_divide(self, first: Node, divisor: int) -> Node:
        """The quotient by a positive constant, rounded down."""
        return (
            first if divisor == 1 else self._binary("floor_divide", first, self.constant(divisor))
        )

    def modulo(self, first: Node, divisor: int) -> Node:
        """The remainder of a division by a positive constant."""
        return self._binary("modulo", first, self.constant(divisor))

    def equal(self, first: Node, second: Node) -> Node:
        """1 where both are equal, 0 elsewhere."""
        return self._commuting("equal", first, second)

    def _commuting(self, operation: str, first: Node, second: Node) -> Node:
        return self._binary(operation, *sorted((first, second)))

    def product(self, factors: Sequence[Node]) -> Node:
        """The product of any number of factors."""
        return reduce(self.multiply, factors, self.constant(1))

    def sum(self, terms: Sequence[Node]) -> Node:
        """The sum of any number of terms."""
        return reduce(self.add, terms, self.constant(0))

    def evaluate(self, points: np.ndarray, nodes: Sequence[Node]) -> np.ndarray:
        """The values of expressions.

        ``points``: decisions, of shape ``(points, entries)``. Returns values of shape ``(nodes,
        points)``.
        """
        needed = self._needed(nodes)
        chosen = np.asarray(nodes, dtype=int)
        values = np.empty((len(chosen), len(points)))
        rows = np.empty((len(self._nodes), min(CHUNK, len(points))))
        for start in range(0, len(points), CHUNK):
            columns = points[start : start + CHUNK].T
            chunk = rows[:, : columns.shape[1]]
            for node in needed:
                self._evaluate(node, columns, chunk)
            values[:, start : start + CHUNK] = chunk[chosen]
        return values

    def _needed(self, nodes: Sequence[Node]) -> list[Node]:
        needed: set[Node] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node in needed:
                continue
            needed.add(node)
            operation, first, second = self._nodes[node]
            if operation in _OPERATIONS:
                waiting += [first, second]
        return sorted(needed)

    def _evaluate(self, node: Node, columns: np.ndarray, rows: np.ndarray) -> None:
        operation, first, second = self._nodes[node]
        if operation == "constant":
            rows[node] = first
        elif operation == "entry":
            rows[node] = columns[first]
        elif operation == "table":
            rows[node] = self._tables[second][columns[first]]
        else:
            rows[node] = _OPERATIONS[operation](rows[first], rows[second])


@dataclass(frozen=True)
class Interval:
    """The least and the greatest value of an index, as nodes of a tape."""

    low: Node
    high: Node


class Intervals:
    """Interval arithmetic on a tape, with the rules of TVM's ``ConstIntBoundAnalyzer``.

    ``tape``: records the expressions.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def constant(self, value: int) -> Interval:
        """One integer."""
        node = self._tape.constant(value)
        return Interval(node, node)

    def counted(self, count: Node) -> Interval:
        """The interval from 0 to one less than a count."""
        zero, one = self._tape.constant(0), self._tape.constant(1)
        return Interval(zero, self._tape.subtract(count, one))

    def add(self, first: Interval, second: Interval) -> Interval:
        """The sum of independent indices."""
        add = self._tape.add
        return Interval(add(first.low, second.low), add(first.high, second.high))

    def scale(self, interval: Interval, factor: int) -> Interval:
        """The product with a constant."""
        node = self._tape.constant(factor)
        ends = [self._tape.multiply(end, node) for end in (interval.low, interval.high)]
        return Interval(*(ends if factor >= 0 else ends[::-1]))

    def floor_divide(self, interval: Interval, divisor: int) -> Interval:
        """The quotient by a positive constant, rounded down."""
        divide = self._tape.floor_divide
        return Interval(divide(interval.low, divisor), divide(interval.high, divisor))

    def floor_modulo(self, interval: Interval, divisor: int) -> Interval:
        """The remainder of a division by a positive constant.

        The result is the index itself where it stays below the divisor, and else the interval of
        all remainders.
        """
        tape = self._tape
        last = tape.constant(divisor - 1)
        if tape.value(interval.low) is not None and (tape.value(interval.low) or 0) >= 0:
            fits = tape.equal(tape.least(interval.high, last), interval.high)
            return Interval(tape.multiply(fits, interval.low), tape.least(interval.high, last))
        return Interval(tape.constant(0), last)

    def union(self, first: Interval, second: Interval) -> Interval:
        """The hull of both."""
        tape = self._tape
        return Interval(tape.least(first.low, second.low), tape.greatest(first.high, second.high))

    def least(self, first: Interval, second: Interval) -> Interval:
        """The smaller of two indices."""
        least = self._tape.least
        return Interval(least(first.low, second.low), least(first.high, second.high))

    def greatest(self, first: Interval, second: Interval) -> Interval:
        """The larger of two indices."""
        greatest = self._tape.greatest
        return Interval(greatest(first.low, second.low), greatest(first.high, second.high))

    def span(self, interval: Interval) -> Node:
        """The range of the index: the greatest value less the least."""
        return self._tape.subtract(interval.high, interval.low)
