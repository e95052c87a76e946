# SPDX-License-Identifier: Apache-2.0
"""Random points of a neighborhood."""

import random
from functools import singledispatch
from math import prod

from ..design_space.factorizations import factorizations
from .published.neighborhood import Axis, ChoiceAxis, Neighborhood, OrderedAxis, Point, TileAxis


def redraw(neighborhood: Neighborhood, point: Point, generator: random.Random) -> Point:
    """A random point: every coordinate drawn anew."""
    for axis in neighborhood.axes:
        point = redraw_axis(axis, point, generator)
    return point


@singledispatch
def redraw_axis(axis: Axis, point: Point, generator: random.Random) -> Point:
    """A point with one coordinate drawn at random."""
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
