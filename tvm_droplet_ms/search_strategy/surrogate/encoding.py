# SPDX-License-Identifier: Apache-2.0
"""Points of the design spaces as vectors, and in bulk: drawn, changed and recombined.

A replay takes milliseconds, and a row of an array microseconds. So a search can consider tens of
thousands of points before it replays the few most promising ones. Imports no TVM.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...design_space.factorizations import factorizations
from ..published.neighborhood import Point

if TYPE_CHECKING:
    from ..published.decision_kinds import DecisionKind
    from ..published.decisions import Decision


ONE_HOT_COLUMNS = 32
"""Columns of a one-hot decision. Values that differ by a multiple of this share a column."""

ONE_HOT_SCALE = 1.0
"""The value of a one-hot column. The distance of two values is the square root of 2 times this."""


class DecisionColumns:
    """A decision without a metric: a compute location. Subclasses override it for other kinds."""

    def values(self, inst: Any, seen: np.ndarray) -> np.ndarray:
        """Values that the decision may have, given its values in some points.

        By default, these are the seen values, because only replays can tell which others are legal.
        ``seen``: of shape ``(points, length)``, with at least one point. Returns values of shape
        ``(values, length)``.
        """
        return np.unique(seen, axis=0)

    def width(self, length: int) -> int:
        """The number of columns of ``encode`` for a decision of ``length`` integers."""
        return ONE_HOT_COLUMNS

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Columns of shape ``(points, columns)`` for values of shape ``(points, length)``.

        Each value has its own column: a location means another loop in every sketch, and the
        difference of two locations does not measure how different their schedules are.
        """
        columns = np.zeros((len(values), ONE_HOT_COLUMNS))
        columns[np.arange(len(values)), values[:, 0].astype(int) % ONE_HOT_COLUMNS] = ONE_HOT_SCALE
        return columns


class CategoricalColumns(DecisionColumns):
    """A choice, which is also one-hot, but all its values are known."""

    def values(self, inst: Any, seen: np.ndarray) -> np.ndarray:
        """All indices."""
        return np.arange(len(inst.attrs[0]))[:, None]


class TileColumns(DecisionColumns):
    """A factorization of a loop's extent."""

    def values(self, inst: Any, seen: np.ndarray) -> np.ndarray:
        """All factorizations; only the seen ones if other decisions determine the extent."""
        extents = np.unique(seen.prod(axis=1))
        if len(extents) > 1:
            return np.unique(seen, axis=0)
        return factorizations(int(extents[0]), seen.shape[1], int(inst.attrs[1]))

    def width(self, length: int) -> int:
        """The number of factors and of products that are neither a factor nor the extent."""
        return max(1, 2 * length - 2)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Base-2 logarithms of the factors, and of the products of the inner factors.

        The products are the extents that a loop's body touches.
        """
        logarithms = np.log2(np.maximum(values, 1))
        if values.shape[1] == 1:
            return np.asarray(logarithms)
        within = np.cumsum(logarithms[:, ::-1], axis=1)[:, ::-1]
        return np.hstack([logarithms, within[:, 1:-1]])


class ExtentColumns(DecisionColumns):
    """A parallel extent: only replays can tell which other extents give another module."""

    def width(self, length: int) -> int:
        """One column."""
        return 1

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The base-2 logarithm."""
        return np.asarray(np.log2(np.maximum(values, 1)))


COLUMNS: Mapping[str, DecisionColumns] = {
    "SamplePerfectTile": TileColumns(),
    "SampleCategorical": CategoricalColumns(),
    "SampleComputeLocation": DecisionColumns(),
    "Annotate": ExtentColumns(),
}
"""The columns by name of the decision kind; see ``published.decision_kinds``."""


class Encoding:
    """Vectors in which points with similar schedules are close.

    The unit is a step: a factor of two moved from one tile position to another, or twice the
    parallel extent. Choices, compute locations and the sketch itself are one-hot. The n-th decision
    of a kind has the same columns in all sketches, so that sketches learn from each other.
    ``sketches``: the decisions of each sketch. ``width``: the number of columns.
    """

    def __init__(self, sketches: Sequence[Sequence["Decision"]]) -> None:
        begins: dict[tuple[DecisionKind, int, int], int] = {}
        self._columns: list[list[tuple[Decision, int]]] = []
        self.width = len(sketches)
        for decisions in sketches:
            seen: Counter[tuple[DecisionKind, int]] = Counter()
            columns: list[tuple[Decision, int]] = []
            for decision in decisions:
                key = (decision.kind, decision.length, seen[decision.kind, decision.length])
                seen[decision.kind, decision.length] += 1
                if key not in begins:
                    begins[key] = self.width
                    self.width += COLUMNS[decision.kind.name].width(decision.length)
                columns.append((decision, begins[key]))
            self._columns.append(columns)

    def vectors(self, points: Sequence[tuple[int, Point]]) -> np.ndarray:
        """Encode points, each the index of a sketch and decisions; of shape ``(points, width)``."""
        vectors = np.zeros((len(points), self.width))
        for sketch in range(len(self._columns)):
            rows = [row for row, (which, _) in enumerate(points) if which == sketch]
            if rows:
                vectors[rows] = self.vectors_of(sketch, np.array([points[row][1] for row in rows]))
        return vectors

    def vectors_of(self, sketch: int, decisions: np.ndarray) -> np.ndarray:
        """Encode points of one sketch; `decisions` is of shape ``(points, integers)``."""
        vectors = np.zeros((len(decisions), self.width))
        vectors[:, sketch] = 1.0
        for own, begin in self._columns[sketch]:
            values = decisions[:, own.start : own.start + own.length]
            columns = COLUMNS[own.kind.name].encode(values)
            vectors[:, begin : begin + columns.shape[1]] = columns
        return vectors


MOST_CHANGES = 4
"""The most coordinates in which a changed point differs. The best schedules of depthwise
convolutions differ from the best steps around them in five decisions at once."""


@dataclass(frozen=True)
class LatentAxis:
    """The values of one coordinate.

    ``start``: the index of its first integer in a point. ``values``: of shape ``(values, length)``,
    at least one.
    """

    start: int
    values: np.ndarray

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Random values, of shape ``(count, length)``."""
        return np.asarray(self.values[generator.integers(len(self.values), size=count)])

    def write(self, points: np.ndarray, rows: np.ndarray, generator: np.random.Generator) -> None:
        """Draw this coordinate anew in some rows."""
        columns = slice(self.start, self.start + self.values.shape[1])
        points[rows, columns] = self.draw(len(rows), generator)


class LatentSpace:
    """The points of one design space, as rows of integers; `axes` together cover a row."""

    def __init__(self, axes: Sequence[LatentAxis]) -> None:
        self.axes = list(axes)
        self._width = sum(axis.values.shape[1] for axis in axes)

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Random points, of shape ``(count, integers)``."""
        points = np.empty((count, self._width), dtype=np.int64)
        rows = np.arange(count)
        for axis in self.axes:
            axis.write(points, rows, generator)
        return points

    def change(self, parents: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
        """Redraw 1 to ``MOST_CHANGES`` coordinates of random parents, given at least one parent."""
        points = _some(parents, count, generator)
        if not self.axes:
            return points
        order = np.argsort(generator.random((count, len(self.axes))), axis=1)
        changes = generator.integers(1, MOST_CHANGES + 1, size=count)
        for index, axis in enumerate(self.axes):
            axis.write(points, np.flatnonzero(order[:, index] < changes), generator)
        return points

    def recombine(
        self, parents: np.ndarray, count: int, generator: np.random.Generator
    ) -> np.ndarray:
        """Take each coordinate from one of two random parents, given at least one parent."""
        points = _some(parents, count, generator)
        others = _some(parents, count, generator)
        for axis in self.axes:
            rows = np.flatnonzero(generator.random(count) < 0.5)
            columns = slice(axis.start, axis.start + axis.values.shape[1])
            points[rows, columns] = others[rows, columns]
        return points


def _some(rows: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Copies of random rows, of shape ``(count, columns)``."""
    return np.array(rows[generator.integers(len(rows), size=count)])
