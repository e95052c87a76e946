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
"""The descent of TVM's own droplet, its faults fixed. Imports no TVM.

TVM's code is ``python/tvm/s_tir/meta_schedule/post_optimization/droplet.py`` and ``space.py``
(0.27). Fixed here: steps go up only, and their lengths are mistaken for positions; tile factors are
powers of two that TVM repairs on replay; categorical decisions and compute locations never move;
the times of a round are credited to other positions where a candidate is missing; a quarter of the
candidates lose their postprocessors; and the p-value is never used.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...search_strategy.neighbourhood import Point
from .significance import is_faster


class Coordinate(Protocol):
    """One coordinate of the descent, along its legal values."""

    def values(self, point: Point) -> Sequence[int]:
        """Legal values at a point in ascending order, the present one included."""

    def value(self, point: Point) -> int:
        """Present value at a point."""

    def apply(self, point: Point, value: int) -> Point:
        """The point with another value."""


@dataclass(frozen=True)
class FactorAxis:
    """Position of a tile other than the outermost, which takes the rest of the extent.

    Parameters
    ----------
    start : int
        Index of the tile's first integer in a point.
    position : int
        The position in the tile, at least 1.
    limit : int
        The largest value; -1 for none.
    """

    start: int
    position: int
    limit: int = -1

    def values(self, point: Point) -> list[int]:
        """The divisors of what this position and the outermost have together."""
        extent = point[self.start] * self.value(point)
        most = extent if self.limit == -1 else max(self.limit, self.value(point))
        return [value for value in range(1, min(extent, most) + 1) if extent % value == 0]

    def value(self, point: Point) -> int:
        """The factor at this position."""
        return point[self.start + self.position]

    def apply(self, point: Point, value: int) -> Point:
        """The point with another factor here, and the rest in the outermost position."""
        moved = list(point)
        moved[self.start] = point[self.start] * self.value(point) // value
        moved[self.start + self.position] = value
        return tuple(moved)


@dataclass(frozen=True)
class ListedAxis:
    """A decision of one integer.

    Parameters
    ----------
    slot : int
        Index of the decision in a point.
    listed : tuple[int, ...]
        Its legal values.
    """

    slot: int
    listed: tuple[int, ...]

    def values(self, point: Point) -> list[int]:
        """The legal values."""
        return sorted({*self.listed, point[self.slot]})

    def value(self, point: Point) -> int:
        """The value in a point."""
        return point[self.slot]

    def apply(self, point: Point, value: int) -> Point:
        """The point with another value."""
        return (*point[: self.slot], value, *point[self.slot + 1 :])


class PostOptDroplet:
    """The descent of TVM's droplet.

    The axes hold legal values only, in order, and steps go both ways. A round has every neighbour
    at distance one; while it is smaller than a batch, longer steps fill it, as TVM's do. The
    descent ends when a round brings nothing faster, by a test where times were repeated.

    Parameters
    ----------
    start : Point
        Decisions to start from.
    best_secs : Sequence[float]
        Its times in seconds.
    axes_at : Callable[[Point], Sequence[Coordinate]]
        The axes at a point.
    realise : Callable[[Point], Point | None]
        Maps a point to the one that TVM realises; None if it cannot be replayed, or its program was
        measured or chosen before.
    batch_size : int
        Longer steps fill a round up to this many points; at least 1.
    max_trials : int
        The trials of the descent.
    p_value : float
        Probability of accepting a candidate that is not faster.

    Attributes
    ----------
    best : Point
        The fastest point so far.
    """

    def __init__(
        self,
        start: Point,
        best_secs: Sequence[float],
        axes_at: Callable[[Point], Sequence[Coordinate]],
        realise: Callable[[Point], Point | None],
        *,
        batch_size: int,
        max_trials: int,
        p_value: float = 0.05,
    ) -> None:
        self.best = start
        self._best_secs = tuple(best_secs)
        self._axes_at = axes_at
        self._realise = realise
        self._batch_size = batch_size
        self._remaining = max_trials
        self._p_value = p_value
        self._asked = {start}
        self._distance = 1
        self._round = self._neighbours()

    def ask(self) -> list[Point]:
        """The points of the next round; empty when the descent has ended."""
        return list(self._round)

    def tell(self, times: Sequence[Sequence[float]]) -> None:
        """Take the times of a round in seconds, one for each point; empty for a failure."""
        self._remaining -= len(self._round)
        before = self._best_secs
        for point, secs in zip(self._round, times, strict=True):
            if not secs or np.mean(secs) >= np.mean(self._best_secs):
                continue
            if is_faster(secs, before, self._p_value):
                self.best, self._best_secs = point, tuple(secs)
                self._distance = 1
        moved = self._best_secs is not before
        all_failed = not any(times)
        self._round = self._neighbours() if moved or all_failed else []

    def _neighbours(self) -> list[Point]:
        """All neighbours at distance one, then farther ones while the batch is not full."""
        found: list[Point] = []
        axes = self._axes_at(self.best)
        longest = max((len(axis.values(self.best)) for axis in axes), default=0)
        while self._distance < longest and len(found) < self._batch_size:
            for point in _at_distance(self.best, axes, self._distance):
                realised = None if point in self._asked else self._realise(point)
                self._asked.add(point)
                if realised is not None:
                    found.append(realised)
            self._distance += 1
        return found[: self._remaining]


def _at_distance(point: Point, axes: Sequence[Coordinate], distance: int) -> Iterator[Point]:
    """Points ``distance`` values up and down each axis."""
    for axis in axes:
        values = axis.values(point)
        place = values.index(axis.value(point))
        for target in (place + distance, place - distance):
            if 0 <= target < len(values):
                yield axis.apply(point, values[target])
