# SPDX-License-Identifier: Apache-2.0
"""Points of a design space in bulk: drawn, changed and recombined without a replay.

A replay takes milliseconds, and a row of an array microseconds. So a search can consider tens of
thousands of points before it replays the few most promising ones. Imports no TVM.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
