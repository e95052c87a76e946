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
"""The "adjacent" neighbourhood of a point: the smallest legal steps of each coordinate."""

import random
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Protocol

from .factorisations import factorisations, prime_factors

Point = tuple[int, ...]
"""The sampled decisions of a trace in order: n integers for a tile, one for any other."""

Move = tuple[int, ...]
"""A step along one axis; its encoding is private to the axis."""


@dataclass(frozen=True)
class Direction:
    """A move along one axis, which can be repeated.

    Parameters
    ----------
    axis : int
        The index of the axis in its neighbourhood.
    move : Move
        The move of that axis.
    """

    axis: int
    move: Move


class Axis(Protocol):
    """One coordinate of the space, which may span several integers of a point."""

    def moves(self, point: Point) -> Iterator[Move]:
        """The legal moves from a point, in a fixed order."""

    def apply(self, point: Point, move: Move) -> Point | None:
        """The point that a move leads to; None where it is not legal."""

    def redraw(self, point: Point, generator: random.Random) -> Point:
        """A point with another value of this coordinate, drawn at random."""


@dataclass(frozen=True)
class TileAxis:
    """A ``SamplePerfectTile``: a point on the lattice of a loop extent's ordered factorisations.

    A move ``(prime, source, target)`` takes one prime factor from one tile position to another, as
    TVM's own mutator does (``mutate_tile_size.cc``), but by the smallest amount.

    Parameters
    ----------
    start : int
        The index of the first tile factor in a point.
    length : int
        The number of tile positions, the innermost last.
    max_innermost_factor : int
        The limit of the innermost position; -1 for none. TVM does not check it on replay.
    """

    start: int
    length: int
    max_innermost_factor: int = -1

    def _tile(self, point: Point) -> Point:
        return point[self.start : self.start + self.length]

    def moves(self, point: Point) -> Iterator[Move]:
        """The prime transfers that are legal from a point."""
        tile = self._tile(point)
        for prime in prime_factors(prod(tile)):
            for source in range(self.length):
                for target in range(self.length):
                    move = (prime, source, target)
                    if self.apply(point, move) is not None:
                        yield move

    def apply(self, point: Point, move: Move) -> Point | None:
        """Transfer a prime factor; None where there is none to take, or the innermost is full."""
        prime, source, target = move
        tile = list(self._tile(point))
        if source == target or tile[source] % prime != 0:
            return None
        tile[source] //= prime
        tile[target] *= prime
        innermost_grew = target == self.length - 1
        if innermost_grew and -1 != self.max_innermost_factor < tile[-1]:
            return None
        return (*point[: self.start], *tile, *point[self.start + self.length :])

    def redraw(self, point: Point, generator: random.Random) -> Point:
        """Draw a factorisation as TVM does (``sampling.cc``, ``SamplePerfectTile``).

        Each is equally likely. To give each prime to a position by itself would make the large
        inner tiles of fast kernels several times rarer.
        """
        extent = prod(self._tile(point))
        tiles = factorisations(extent, self.length, self.max_innermost_factor)
        tile = tiles[generator.randrange(len(tiles))]
        return (*point[: self.start], *tile.tolist(), *point[self.start + self.length :])


@dataclass(frozen=True)
class OrderedAxis:
    """A decision whose values have an order: a move ``(+1,)`` or ``(-1,)`` goes to the next one.

    Parameters
    ----------
    slot : int
        The index of the decision in a point.
    values : tuple[int, ...]
        The legal values, ascending.
    """

    slot: int
    values: tuple[int, ...]

    def moves(self, point: Point) -> Iterator[Move]:
        """Up and down, where there is a next value."""
        for move in ((1,), (-1,)):
            if self.apply(point, move) is not None:
                yield move

    def apply(self, point: Point, move: Move) -> Point | None:
        """The next value above or below; None at the end of the axis."""
        value = point[self.slot]
        place = bisect_left(self.values, value)
        known = place < len(self.values) and self.values[place] == value
        if move[0] > 0:
            target = place + 1 if known else place
        else:
            target = place - 1
        if not 0 <= target < len(self.values):
            return None
        return (*point[: self.slot], self.values[target], *point[self.slot + 1 :])

    def redraw(self, point: Point, generator: random.Random) -> Point:
        """Any of the values."""
        value = generator.choice(self.values) if self.values else point[self.slot]
        return (*point[: self.slot], value, *point[self.slot + 1 :])


@dataclass(frozen=True)
class ChoiceAxis:
    """A decision among values without an order: a move ``(value,)`` chooses that one.

    Parameters
    ----------
    slot : int
        The index of the decision in a point.
    count : int
        The number of choices, 0 to count - 1.
    """

    slot: int
    count: int

    def moves(self, point: Point) -> Iterator[Move]:
        """Every other choice."""
        return ((value,) for value in range(self.count) if value != point[self.slot])

    def apply(self, point: Point, move: Move) -> Point | None:
        """Choose a value; None where it is the present one."""
        if point[self.slot] == move[0]:
            return None
        return (*point[: self.slot], move[0], *point[self.slot + 1 :])

    def redraw(self, point: Point, generator: random.Random) -> Point:
        """Any of the choices."""
        return (*point[: self.slot], generator.randrange(self.count), *point[self.slot + 1 :])


@dataclass(frozen=True)
class Neighbourhood:
    """The axes of a space around a point, and the steps along them.

    The axes may differ from point to point: which compute locations are legal depends on the tiles.

    Parameters
    ----------
    axes : tuple[Axis, ...]
        The axes, in the order of the trace's instructions.
    """

    axes: tuple[Axis, ...]

    def directions(self, point: Point) -> Iterator[Direction]:
        """The directions that are legal from a point, axis by axis."""
        for index, axis in enumerate(self.axes):
            for move in axis.moves(point):
                yield Direction(index, move)

    def step(self, point: Point, *directions: Direction) -> Point | None:
        """The point that the directions lead to, one after the other; None if one is not legal."""
        for direction in directions:
            moved = self.axes[direction.axis].apply(point, direction.move)
            if moved is None:
                return None
            point = moved
        return point

    def adjacent(self, point: Point) -> Iterator[Point]:
        """The points that one step leads to."""
        for direction in self.directions(point):
            moved = self.step(point, direction)
            if moved is not None:
                yield moved

    def redraw(self, point: Point, generator: random.Random) -> Point:
        """A random point: every coordinate drawn anew."""
        for axis in self.axes:
            point = axis.redraw(point, generator)
        return point
