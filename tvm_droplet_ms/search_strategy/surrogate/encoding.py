# SPDX-License-Identifier: Apache-2.0
"""Points of the design spaces as vectors. Imports no TVM."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..published.neighborhood import Point
from .decision_columns import COLUMNS

if TYPE_CHECKING:
    from ..published.decision_kinds import DecisionKind
    from ..published.decisions import Decision


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
