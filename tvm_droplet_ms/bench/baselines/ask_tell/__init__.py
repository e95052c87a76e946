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
"""Generic search algorithms that are asked for points and told their times. Imports no TVM."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Container, Generator, Sequence
from math import prod
from typing import Protocol

Point = tuple[int, ...]
"""The sketch, then the index of the chosen value of each of its decisions."""


class SearchSpace(Protocol):
    """A space as an algorithm sees it.

    Attributes
    ----------
    sizes : Sequence[tuple[int, ...]]
        For each sketch, how many values each of its decisions has.
    ordered : Sequence[tuple[bool, ...]]
        For each sketch, whether the values of each decision have an order.
    """

    @property
    def sizes(self) -> Sequence[tuple[int, ...]]: ...

    @property
    def ordered(self) -> Sequence[tuple[bool, ...]]: ...

    def sample(self, generator: random.Random) -> Point:
        """A random point."""

    def neighbours(self, point: Point) -> list[Point]:
        """The adjacent points of a point, in a fixed order."""


class AskTell(Protocol):
    """A search algorithm that someone else's loop drives.

    No point is asked for twice. Every point must be told before more are asked for.
    """

    def ask(self, n: int) -> list[Point]:
        """Up to n points to measure, fewer where each depends on the one before.

        Returns
        -------
        points : list[Point]
            Empty when n is 0 or every point of the space has been asked for.
        """

    def tell(self, point: Point, secs: float) -> None:
        """The time of a point in seconds; infinity if it failed."""


def unseen_point(
    sizes: Sequence[tuple[int, ...]], seen: Container[Point], generator: random.Random
) -> Point | None:
    """Find the first point that was not seen, from a uniformly random one on.

    It looks at one point more than were seen at most, however large the space is.

    Parameters
    ----------
    sizes : Sequence[tuple[int, ...]]
        As in `SearchSpace`.
    seen : Container[Point]
        Points that were seen.
    generator : random.Random
        Chooses the first point to look at.

    Returns
    -------
    point : Point | None
        None when all were seen.
    """
    total = sum(map(prod, sizes))
    first = generator.randrange(total)
    for number in range(total):
        point = _point_at(sizes, (first + number) % total)
        if point not in seen:
            return point
    return None


def _point_at(sizes: Sequence[tuple[int, ...]], number: int) -> Point:
    """The point of a number in lexical order."""
    sketch = 0
    while number >= prod(sizes[sketch]):
        number -= prod(sizes[sketch])
        sketch += 1
    indices: list[int] = []
    for size in reversed(sizes[sketch]):
        number, index = divmod(number, size)
        indices.append(index)
    return (sketch, *reversed(indices))


_SAMPLES = 8
"""Samples drawn for an unseen point before the space is looked through for one."""


def fresh_point(
    space: SearchSpace, seen: Container[Point], generator: random.Random
) -> Point | None:
    """A random point that was not seen; None when all were."""
    for _ in range(_SAMPLES):
        point = space.sample(generator)
        if point not in seen:
            return point
    return unseen_point(space.sizes, seen, generator)


_KNOWN_STEPS = 1000
"""Steps that a walk may take over known points before it starts afresh."""


class Walk(ABC):
    """An algorithm that goes from point to point: each depends on the time of the one before.

    At a known point it continues with the known time.

    Parameters
    ----------
    space : SearchSpace
        Space to search.
    generator : random.Random
        Makes all its choices.

    Attributes
    ----------
    times : dict[Point, float]
        Known times in seconds; infinity for failures.
    """

    def __init__(self, space: SearchSpace, generator: random.Random) -> None:
        self.space = space
        self.generator = generator
        self.times: dict[Point, float] = {}
        self._steps: Generator[Point, float, None] | None = None
        self._point: Point = ()

    @abstractmethod
    def walk(self, start: Point) -> Generator[Point, float, None]:
        """Yield points, the start first, and be sent their times. To end is to start afresh."""

    def ask(self, n: int) -> list[Point]:
        """One point; see `AskTell`."""
        if n < 1:
            return []
        point = self._go_on()
        if point is None:
            point = fresh_point(self.space, self.times, self.generator)
            if point is None:
                return []
            self._steps = self.walk(point)
            next(self._steps)
        self._point = point
        return [point]

    def tell(self, point: Point, secs: float) -> None:
        """See `AskTell`."""
        self.times[point] = secs

    def _go_on(self) -> Point | None:
        """The next point without a time; None where a walk has to start."""
        if self._steps is None:
            return None
        point = self._point
        for _ in range(_KNOWN_STEPS):
            try:
                point = self._steps.send(self.times[point])
            except StopIteration:
                return None
            if point not in self.times:
                return point
        return None
