# SPDX-License-Identifier: Apache-2.0
"""The points of a run that were tried, and those that a descent may propose."""

import math
import random
from functools import singledispatch
from math import prod

from ...design_space.factorizations import factorizations
from ..candidates import TaskHistory
from ..design_spaces import EncodedSpaces
from ..published.candidates import Candidate, mean
from ..published.decisions import Prober, SpacePoint
from ..published.neighborhood import Axis, ChoiceAxis, Neighborhood, OrderedAxis, Point, TileAxis


class TriedPoints:
    """Records which points were measured, with their times, and which were rejected.

    Many points may give one module: a point is tried once its module is measured.
    """

    def __init__(self, history: TaskHistory, spaces: EncodedSpaces) -> None:
        self._history = history
        self._spaces = spaces
        self._measured: dict[int, SpacePoint | None] = {}
        self._modules: dict[SpacePoint, int | None] = {}

    def seconds(self) -> dict[SpacePoint, float]:
        """The mean time of every measured point in seconds; infinity for a failure."""
        secs: dict[SpacePoint, float] = {}
        for module, trace, times in self._history.measurements():
            if module not in self._measured:
                self._measured[module] = self._spaces.find(trace)
            point = self._measured[module]
            if point is not None:
                # Other postprocessors may have made another module from the same decisions.
                secs[point] = min(secs.get(point, math.inf), mean(times) if times else math.inf)
                self._modules[point] = module
        return secs

    def note(self, point: SpacePoint, candidate: Candidate | None) -> None:
        """Remember the replay of a point: its candidate, or None if it is rejected."""
        self._modules[point] = None if candidate is None else candidate.module

    def note_new(self, point: SpacePoint, candidate: Candidate | None) -> None:
        """Remember the replay of a point, unless it is known."""
        self._modules.setdefault(point, None if candidate is None else candidate.module)

    def is_tried(self, point: SpacePoint) -> bool:
        """True if the module of a point was measured, or the point is rejected."""
        module = self._modules.get(point, math.inf)
        return module is None or module in self._measured

    def rejected(self) -> list[SpacePoint]:
        """All rejected points, the latest last."""
        return [point for point, module in self._modules.items() if module is None]


def redraw(neighborhood: Neighborhood, point: Point, generator: random.Random) -> Point:
    """A random point: every coordinate drawn anew."""
    for axis in neighborhood.axes:
        point = redraw_axis(axis, point, generator)
    return point


@singledispatch
def redraw_axis(axis: Axis, point: Point, generator: random.Random) -> Point:
    """Redraw one coordinate of a point at random."""
    raise TypeError(f"axis is {axis!r}, expected one that can be redrawn")


@redraw_axis.register
def _(axis: TileAxis, point: Point, generator: random.Random) -> Point:
    """Draw a factorization as TVM does (``sampling.cc``, ``SamplePerfectTile``).

    All factorizations are equally likely. Placing each prime factor independently would make the
    large inner tiles of fast kernels several times rarer.
    """
    extent = prod(point[axis.start : axis.start + axis.length])
    tiles = factorizations(extent, axis.length, axis.max_innermost_factor)
    tile = tiles[generator.randrange(len(tiles))]
    return (*point[: axis.start], *tile.tolist(), *point[axis.start + axis.length :])


@redraw_axis.register
def _(axis: OrderedAxis, point: Point, generator: random.Random) -> Point:
    """Any of the values."""
    value = generator.choice(axis.values) if axis.values else point[axis.slot]
    return (*point[: axis.slot], value, *point[axis.slot + 1 :])


@redraw_axis.register
def _(axis: ChoiceAxis, point: Point, generator: random.Random) -> Point:
    """Any of the choices."""
    return (*point[: axis.slot], generator.randrange(axis.count), *point[axis.slot + 1 :])


class LocalMoves:
    """Finds steps from a point and random points; probes each neighborhood once."""

    def __init__(self, spaces: EncodedSpaces, prober: Prober, generator: random.Random) -> None:
        self._spaces = spaces
        self._prober = prober
        self._generator = generator
        self._neighborhoods: list[dict[Point, Neighborhood]] = [{} for _ in spaces.sketches]

    def neighborhood(self, point: SpacePoint) -> Neighborhood:
        """The neighborhood of a point."""
        sketch, decisions = point
        known = self._neighborhoods[sketch]
        if decisions not in known:
            known[decisions] = self._prober.neighborhood(
                self._spaces.sketches[sketch], self._spaces.trace(point)
            )
        return known[decisions]

    def adjacent(self, point: SpacePoint) -> dict[SpacePoint, None]:
        """The points one step away, in a fixed order."""
        sketch, decisions = point
        adjacent = self.neighborhood(point).steps(decisions, 1)
        return dict.fromkeys((sketch, near) for near in adjacent)

    def random_points(self, count: int) -> dict[SpacePoint, None]:
        """At most ``count`` random points of all sketches."""
        return dict.fromkeys(self._random_point() for _ in range(count))

    def _random_point(self) -> SpacePoint:
        """A random point; its locations and parallel extents are legal in a known neighborhood."""
        sketch = self._generator.randrange(len(self._spaces.sketches))
        known = self._neighborhoods[sketch]
        if not known:
            self.neighborhood((sketch, self._spaces.start(sketch)))
        decisions, neighborhood = self._generator.choice(list(known.items()))
        return sketch, redraw(neighborhood, decisions, self._generator)
