# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Points of the design spaces as vectors, near where their schedules are alike. Imports no TVM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .neighbourhood import Point


class Slot(Protocol):
    """A decision and its place in a point, as ``decisions.Decision``."""

    @property
    def kind(self) -> str: ...
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
        values = points[:, self.slot.start : self.slot.start + self.slot.length]
        if self.slot.kind in ("SamplePerfectTile", "Annotate"):
            values = np.log2(np.maximum(values, 1))
        if self.slot.length > 1:
            within = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
            values = np.hstack([values, within[:, 1:-1]])
        vectors[:, self.begin : self.begin + values.shape[1]] = values


class Encoding:
    """The vectors of points.

    The unit is a step: a factor of two that goes from one tile position to another, the next
    value of a choice, the next compute location, twice the parallel extent. A tile has the
    logarithms to base 2 of its factors, and those of the products of the inner ones, which are what
    a loop's body touches. The n-th decision of a kind has the same columns in all sketches, so that
    one learns from the other; the sketch itself is one choice.

    Parameters
    ----------
    sketches : Sequence[Sequence[Slot]]
        The decisions of each sketch.
    """

    def __init__(self, sketches: Sequence[Sequence[Slot]]) -> None:
        begins: dict[tuple[str, int, int], int] = {}
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
                    self.width += max(1, 2 * slot.length - 2)
                columns.append(_Columns(slot, begins[key]))
            self._columns.append(columns)

    def vectors(self, points: Sequence[tuple[int, Point]]) -> np.ndarray:
        """The vectors of points.

        Parameters
        ----------
        points : Sequence[tuple[int, Point]]
            For each its sketch and its decisions.

        Returns
        -------
        vectors : np.ndarray
            Of shape ``(points, width)``.
        """
        vectors = np.zeros((len(points), self.width))
        for sketch, columns in enumerate(self._columns):
            rows = [row for row, (which, _) in enumerate(points) if which == sketch]
            if not rows:
                continue
            part = np.zeros((len(rows), self.width))
            part[:, sketch] = 1.0
            decisions = np.array([points[row][1] for row in rows], dtype=float)
            for column in columns:
                column.write(decisions, part)
            vectors[rows] = part
        return vectors
