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
"""The moves of TVM's own droplet with its faults mended. Imports no TVM."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...search_strategy.neighbourhood import Point
from .significance import Noise


class MendedAxis(Protocol):
    """One coordinate of the mended droplet, along its legal values."""

    def values(self, point: Point) -> Sequence[int]:
        """The values that the coordinate may take from a point, ascending, its own included."""

    def value(self, point: Point) -> int:
        """The value that it has."""

    def apply(self, point: Point, value: int) -> Point:
        """The point with another of its values."""


@dataclass(frozen=True)
class FactorAxis:
    """A position of a tile other than the outermost, which takes up what this one gives.

    Parameters
    ----------
    start : int
        Where the tile begins in a point.
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
        Where the decision stands in a point.
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


class MendedDroplet:
    """The descent of TVM's droplet without the faults named in ``post_opt.py``.

    The axes hold legal values only, in order, and steps go both ways. A round has every neighbour
    at distance one; while it is smaller than a batch, longer steps fill it, as TVM's do. The
    descent ends when a round brings nothing faster, by a test where times were repeated.

    Parameters
    ----------
    start : Point
        The decisions to start from.
    best_secs : Sequence[float]
        Its times in seconds.
    axes_at : Callable[[Point], Sequence[MendedAxis]]
        The axes at a point.
    realise : Callable[[Point], Point | None]
        The point that TVM makes of one that is asked for; None if it makes none, or one whose
        program was measured or chosen before.
    batch_size : int
        Up to how many points a round is filled with longer steps, at least 1.
    max_trials : int
        The trials of the descent.
    p_value : float
        The probability of accepting a step that is none.

    Attributes
    ----------
    best : Point
        The fastest point so far.
    """

    def __init__(
        self,
        start: Point,
        best_secs: Sequence[float],
        axes_at: Callable[[Point], Sequence[MendedAxis]],
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
        self._noise = Noise(p_value)
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
            if self._noise.compare(secs, before).faster:
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


def _at_distance(point: Point, axes: Sequence[MendedAxis], distance: int) -> Iterator[Point]:
    """The points some values up and down each axis."""
    for axis in axes:
        values = axis.values(point)
        place = values.index(axis.value(point))
        for target in (place + distance, place - distance):
            if 0 <= target < len(values):
                yield axis.apply(point, values[target])
