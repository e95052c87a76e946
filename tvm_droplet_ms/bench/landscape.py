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
"""Landscape of a space: its local minima, and the ends of descents. Imports no TVM.

The Droplet hypothesis ("Explore as a Storm, Exploit as a Raindrop") is that good kernels lie
together, so that a descent by the smallest steps from a good one reaches a very good one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from .space import Space

Graph = list[list[int]]
"""For each module the modules that an adjacent step leads to."""


@dataclass(frozen=True)
class Landscape:
    """The figures of a space.

    Parameters
    ----------
    points, modules, failed : int
        The points, the distinct modules, and the points without a time.
    optimum : float
        The smallest time, in seconds.
    best_percent, middle : float
        The 1% quantile and the median of the modules' times, as multiples of the optimum.
    noise : float
        The median over the modules of the relative interquartile range over the passes.
    unsteady : float
        The share of the modules whose slowest pass took more than twice the fastest.
    local_minima : int
        The modules without a faster neighbour.
    minima : tuple[float, ...]
        Their times as multiples of the optimum, ascending.
    deep_minima : int
        Local minima that remain if a step must gain more than the noise of two timings.
    descents_to_5_percent : float
        Share of the modules from which the steepest descent ends within 5% of the optimum.
    descent_from_best_of : dict[int, float]
        The same share when starting from the best of this many random modules, in expectation.
    found_by_best_of : dict[int, float]
        Share of such draws whose best module is itself within 5% of the optimum.
    """

    points: int
    modules: int
    failed: int
    optimum: float
    best_percent: float
    middle: float
    noise: float
    unsteady: float
    local_minima: int
    minima: tuple[float, ...]
    deep_minima: int
    descents_to_5_percent: float
    descent_from_best_of: dict[int, float]
    found_by_best_of: dict[int, float]


DRAWS = (16, 64)


def landscape(space: Space) -> Landscape:
    """Look at all points of a space."""
    times = space.times
    valid = sorted(time for time in times if math.isfinite(time))
    graph = module_graph(space)
    noise = _noise(space)
    minima = local_minima(times, graph)
    ends = [times[end] for end in descents(times, graph)]
    order = sorted(range(len(times)), key=times.__getitem__)
    near = 1.05 * space.optimum
    return Landscape(
        points=len(space.points),
        modules=len(times),
        failed=sum(
            point.module is None or not math.isfinite(times[point.module]) for point in space.points
        ),
        optimum=space.optimum,
        best_percent=float(np.quantile(valid, 0.01)) / space.optimum,
        middle=median(valid) / space.optimum,
        noise=noise,
        unsteady=_unsteady(space),
        local_minima=len(minima),
        minima=tuple(sorted(times[module] / space.optimum for module in minima)),
        deep_minima=len(local_minima(times, graph, math.sqrt(2) * noise)),
        descents_to_5_percent=sum(end <= near for end in ends) / len(valid),
        descent_from_best_of={
            draws: best_of([ends[module] <= near for module in order], draws) for draws in DRAWS
        },
        found_by_best_of={
            draws: best_of([times[module] <= near for module in order], draws) for draws in DRAWS
        },
    )


def module_graph(space: Space) -> Graph:
    """The neighbours of each module: those of all the points that make it."""
    neighbours: list[set[int]] = [set() for _ in space.modules]
    for point in space.points:
        if point.module is not None:
            found = {neighbour.module for neighbour in space.neighbours(point)}
            neighbours[point.module] |= {n for n in found if n is not None and n != point.module}
    return [sorted(found) for found in neighbours]


def local_minima(times: Sequence[float], graph: Graph, tolerance: float = 0.0) -> list[int]:
    """The modules without a faster neighbour.

    Parameters
    ----------
    times : Sequence[float]
        The time of each module; infinity for failures, which are no minima.
    graph : Graph
        Their neighbours.
    tolerance : float
        Minimum relative gain in time of a faster neighbour.
    """
    return [
        module
        for module, time in enumerate(times)
        if math.isfinite(time)
        and all(times[neighbour] >= time * (1 - tolerance) for neighbour in graph[module])
    ]


def descents(times: Sequence[float], graph: Graph) -> list[int]:
    """End of the steepest descent from each module, by steps to the fastest neighbour."""
    ends: list[int] = list(range(len(times)))
    for module in sorted(range(len(times)), key=times.__getitem__):
        fastest = min(graph[module], key=times.__getitem__, default=module)
        if times[fastest] < times[module]:
            ends[module] = ends[fastest]
    return ends


def best_of(is_good: Sequence[bool], draws: int) -> float:
    """The probability that the best of a random sample is good.

    Parameters
    ----------
    is_good : Sequence[bool]
        True for each good item, the best item first.
    draws : int
        Number of items drawn, none twice.

    Returns
    -------
    probability : float
        The sum over the ranks of the good items of ``C(N - rank, draws - 1) / C(N, draws)``.
    """
    count = len(is_good)
    draws = min(draws, count)
    probability = draws / count  # That the very best is drawn.
    total = 0.0
    for rank, good in enumerate(is_good):
        total += probability if good else 0.0
        remaining = count - rank - 1
        if remaining < draws:
            break
        probability *= (remaining - draws + 1) / remaining
    return total


def _noise(space: Space) -> float:
    spreads = []
    for module in space.modules:
        if module.secs:
            low, high = np.quantile(module.secs, (0.25, 0.75))
            spreads.append(float(high - low) / module.time)
    return median(spreads)


def _unsteady(space: Space) -> float:
    measured = [module.secs for module in space.modules if module.secs]
    return sum(max(secs) > 2 * min(secs) for secs in measured) / len(measured)
