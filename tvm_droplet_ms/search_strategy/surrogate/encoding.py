# SPDX-License-Identifier: Apache-2.0
"""Points of the design spaces as vectors. Imports no TVM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..published.neighbourhood import Point
from .decision_columns import COLUMNS


class Kind(Protocol):
    """A kind of decision, as ``published.decision_kinds.DecisionKind``."""

    @property
    def name(self) -> str: ...


class Slot(Protocol):
    """A decision and its position in a point, as ``decisions.Decision``."""

    @property
    def kind(self) -> Kind: ...
    @property
    def start(self) -> int: ...
    @property
    def length(self) -> int: ...


@dataclass(frozen=True)
class _Columns:
    """The columns of one decision."""

    slot: Slot
    begin: int

    def write(self, points: np.ndarray, vectors: np.ndarray) -> None:
        columns = COLUMNS[self.slot.kind.name]
        values = columns.encode(points[:, self.slot.start : self.slot.start + self.slot.length])
        vectors[:, self.begin : self.begin + values.shape[1]] = values


class Encoding:
    """Vectors in which points with similar schedules are close.

    The unit is a step: a factor of two moved from one tile position to another, or twice the
    parallel extent. Choices, compute locations and the sketch itself are one-hot. The n-th decision
    of a kind has the same columns in all sketches, so that one sketch learns from the other.
    ``sketches``: the decisions of each sketch. ``width``: the number of columns.
    """

    def __init__(self, sketches: Sequence[Sequence[Slot]]) -> None:
        begins: dict[tuple[Kind, int, int], int] = {}
        self._columns: list[list[_Columns]] = []
        self.width = len(sketches)
        for slots in sketches:
            columns: list[_Columns] = []
            for slot in slots:
                same = sum(
                    (c.slot.kind, c.slot.length) == (slot.kind, slot.length) for c in columns
                )
                key = (slot.kind, slot.length, same)
                if key not in begins:
                    begins[key] = self.width
                    self.width += COLUMNS[slot.kind.name].width(slot.length)
                columns.append(_Columns(slot, begins[key]))
            self._columns.append(columns)

    def vectors(self, points: Sequence[tuple[int, Point]]) -> np.ndarray:
        """Encode points.

        ``points``: the index of the sketch and the decisions of each point. Returns values of shape
        ``(points, width)``.
        """
        vectors = np.zeros((len(points), self.width))
        for sketch in range(len(self._columns)):
            rows = [row for row, (which, _) in enumerate(points) if which == sketch]
            if rows:
                vectors[rows] = self.vectors_of(sketch, np.array([points[row][1] for row in rows]))
        return vectors

    def vectors_of(self, sketch: int, decisions: np.ndarray) -> np.ndarray:
        """Encode points of one sketch.

        ``sketch``: the index of the sketch. ``decisions``: the decisions, of shape ``(points,
        integers)``. Returns values of shape ``(points, width)``.
        """
        vectors = np.zeros((len(decisions), self.width))
        vectors[:, sketch] = 1.0
        for column in self._columns[sketch]:
            column.write(decisions, vectors)
        return vectors
