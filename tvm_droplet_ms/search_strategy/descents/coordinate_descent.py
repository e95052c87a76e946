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
"""Coordinate descent as published: "Explore as a Storm, Exploit as a Raindrop". Imports no TVM.

The Droplet search of Canesche et al. (arXiv 2406.20037, and ACM TACO 2024, doi 10.1145/3650109),
one decision at a time:

1. Propose the points one step from the incumbent along each decision, in both directions.
2. Where a batch has room left, speculate: add the points two steps away along the same directions,
   then three, and so on.
3. Measure the batch. The fastest point that is significantly faster becomes the incumbent: go to 1.
4. If no neighbour is, the incumbent is a local optimum.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice

from ..neighbourhood import Neighbourhood, Point
from .significance import is_faster

Times = tuple[float, ...]
"""The times of one measurement in seconds; empty for a failure."""

LONGEST_STEP = 4
"""The longest speculative step; few decisions can go further in one direction."""


def coordinate_descent(
    start: Point,
    start_times: Times,
    neighbourhood: Callable[[Point], Neighbourhood],
    known: Callable[[Point], Times | None],
    batch_size: Callable[[], int],
) -> Generator[list[Point], Mapping[Point, Times], Point]:
    """Descend from a point to a local optimum.

    Parameters
    ----------
    start : Point
        The first incumbent.
    start_times : Times
        Its times, at least one.
    neighbourhood : Callable[[Point], Neighbourhood]
        The legal steps around a point.
    known : Callable[[Point], Times | None]
        The times of a point that needs no measurement: it was measured before, or is rejected.
        None for a point that must be measured.
    batch_size : Callable[[], int]
        The most points of the next batch.

    Yields
    ------
    batch : list[Point]
        Points to measure; not empty.

    Receives
    --------
    times : Mapping[Point, Times]
        The times of each.

    Returns
    -------
    optimum : Point
        The last incumbent.
    """
    incumbent, incumbent_times = start, start_times
    while True:
        around = neighbourhood(incumbent)
        near = dict.fromkeys(steps(around, incumbent, 1))
        far = dict.fromkeys(
            point
            for length in range(2, LONGEST_STEP + 1)
            for point in steps(around, incumbent, length)
            if point not in near
        )
        times = {point: known(point) for point in near}
        pending = [point for point, measured in times.items() if measured is None]
        speculative = (point for point in far if known(point) is None)
        better = fastest_significant(times, incumbent_times)
        while better is None and pending:
            room = batch_size()
            batch, pending = pending[:room], pending[room:]
            batch += islice(speculative, room - len(batch))
            times.update((yield batch))
            better = fastest_significant(times, incumbent_times)
        if better is None:
            return incumbent
        incumbent, incumbent_times = better, times[better] or ()


def steps(around: Neighbourhood, point: Point, length: int) -> Iterator[Point]:
    """The points ``length`` steps away along each single direction.

    Parameters
    ----------
    around : Neighbourhood
        The neighbourhood of the point.
    point : Point
        The start.
    length : int
        The number of steps.
    """
    for direction in around.directions(point):
        moved = around.step(point, *[direction] * length)
        if moved is not None:
            yield moved


def fastest_significant(times: Mapping[Point, Times | None], incumbent: Times) -> Point | None:
    """The fastest point that is significantly faster than the incumbent; None if there is none.

    Parameters
    ----------
    times : Mapping[Point, Times | None]
        The times of points: empty for a failure, None where not measured.
    incumbent : Times
        The times of the incumbent.
    """
    means = {
        point: sum(measured) / len(measured)
        for point, measured in times.items()
        if measured and is_faster(measured, incumbent)
    }
    return min(means, key=means.__getitem__, default=None)
