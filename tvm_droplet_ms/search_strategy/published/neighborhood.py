# SPDX-License-Identifier: Apache-2.0
"""The "adjacent" neighborhood of a point: the smallest legal steps of each coordinate.

Imports no TVM.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Protocol

Point = tuple[int, ...]
"""The sampled decisions of a trace in order: n integers for a tile, one for any other."""

Move = tuple[int, ...]
"""A step along one axis; its encoding is private to the axis."""


@dataclass(frozen=True)
class Direction:
    """A move along one axis of a neighborhood, given by its index; it can be repeated."""

    axis: int
    move: Move


class Axis(Protocol):
    """One coordinate of the space, which may span several integers of a point."""

    def moves(self, point: Point) -> Iterator[Move]:
        """The legal moves from a point, in a fixed order."""

    def apply(self, point: Point, move: Move) -> Point | None:
        """The point that a move leads to; None if the move is illegal."""


@dataclass(frozen=True)
class TileAxis:
    """A ``SamplePerfectTile``: a point on the lattice of a loop extent's ordered factorizations.

    A move ``(prime, source, target)`` takes one prime factor from one tile position to another, as
    TVM's own mutator does (``mutate_tile_size.cc``), but by the smallest amount. The tile has
    ``length`` integers of a point from ``start`` on, the innermost last. TVM does not check the
    limit of the innermost factor on replay; -1 means no limit.
    """

    start: int
    length: int
    max_innermost_factor: int = -1

    def moves(self, point: Point) -> Iterator[Move]:
        for prime in prime_factors(prod(point[self.start : self.start + self.length])):
            for source in range(self.length):
                for target in range(self.length):
                    move = (prime, source, target)
                    if self.apply(point, move) is not None:
                        yield move

    def apply(self, point: Point, move: Move) -> Point | None:
        prime, source, target = move
        tile = list(point[self.start : self.start + self.length])
        if source == target or tile[source] % prime != 0:
            return None
        tile[source] //= prime
        tile[target] *= prime
        innermost_grew = target == self.length - 1
        if innermost_grew and -1 != self.max_innermost_factor < tile[-1]:
            return None
        return (*point[: self.start], *tile, *point[self.start + self.length :])


@dataclass(frozen=True)
class OrderedAxis:
    """A decision with ascending values: a move ``(+1,)`` or ``(-1,)`` goes to the adjacent value.

    The decision is the integer at ``slot`` of a point.
    """

    slot: int
    values: tuple[int, ...]

    def moves(self, point: Point) -> Iterator[Move]:
        for move in ((1,), (-1,)):
            if self.apply(point, move) is not None:
                yield move

    def apply(self, point: Point, move: Move) -> Point | None:
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


@dataclass(frozen=True)
class ChoiceAxis:
    """A decision among ``count`` unordered values: a move ``(value,)`` chooses a value."""

    slot: int
    count: int

    def moves(self, point: Point) -> Iterator[Move]:
        return ((value,) for value in range(self.count) if value != point[self.slot])

    def apply(self, point: Point, move: Move) -> Point | None:
        if point[self.slot] == move[0]:
            return None
        return (*point[: self.slot], move[0], *point[self.slot + 1 :])


@dataclass(frozen=True)
class Neighborhood:
    """The axes of a space around a point, in the order of the trace's instructions.

    The axes may differ from point to point: which compute locations are legal depends on the tiles.
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

    def steps(self, point: Point, length: int) -> Iterator[Point]:
        """The points that are ``length`` steps away along each single direction."""
        for direction in self.directions(point):
            moved = self.step(point, *[direction] * length)
            if moved is not None:
                yield moved


@lru_cache(maxsize=1024)
def prime_factors(number: int) -> tuple[int, ...]:
    """The distinct prime factors of a positive integer, in ascending order."""
    if number < 1:
        raise ValueError(f"number is {number}, expected a positive integer")
    primes = []
    divisor = 2
    while number > 1:
        # A number without a divisor up to its square root is prime.
        divisor = divisor if divisor * divisor <= number else number
        if number % divisor == 0:
            primes.append(divisor)
        while number % divisor == 0:
            number //= divisor
        divisor += 1
    return tuple(primes)
