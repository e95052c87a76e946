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
"""Random points of a neighbourhood."""

import random
from functools import singledispatch
from math import prod

from .factorisations import factorisations
from .published.neighbourhood import (
    Axis,
    ChoiceAxis,
    Direction,
    Neighbourhood,
    OrderedAxis,
    Point,
    TileAxis,
)

__all__ = [
    "Axis",
    "ChoiceAxis",
    "Direction",
    "Neighbourhood",
    "OrderedAxis",
    "Point",
    "TileAxis",
    "redraw",
    "redraw_axis",
]


def redraw(neighbourhood: Neighbourhood, point: Point, generator: random.Random) -> Point:
    """A random point: every coordinate drawn anew."""
    for axis in neighbourhood.axes:
        point = redraw_axis(axis, point, generator)
    return point


@singledispatch
def redraw_axis(axis: Axis, point: Point, generator: random.Random) -> Point:
    """A point with another value of one coordinate, drawn at random."""
    raise TypeError(f"axis is {axis!r}, expected one that can be redrawn")


@redraw_axis.register
def _(axis: TileAxis, point: Point, generator: random.Random) -> Point:
    """Draw a factorisation as TVM does (``sampling.cc``, ``SamplePerfectTile``).

    Each is equally likely. To give each prime to a position by itself would make the large inner
    tiles of fast kernels several times rarer.
    """
    extent = prod(point[axis.start : axis.start + axis.length])
    tiles = factorisations(extent, axis.length, axis.max_innermost_factor)
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
