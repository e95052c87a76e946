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
"""Iterated local search."""

import random
from collections.abc import Generator

from . import Point, SearchSpace, Walk


class LocalSearch(Walk):
    """Greedy iterated local search over the adjacent neighbourhood.

    Climbs by first improvement, neighbours in random order, to a local optimum. Then it changes a
    few random decisions of that optimum and climbs again, and keeps the better of the two. After
    several such perturbations without gain it starts afresh from a random point. Kernel Tuner's
    ``greedy_ils`` perturbs as many decisions, but goes on from where it got, better or not.

    Parameters
    ----------
    space : SearchSpace
        Space to search.
    generator : random.Random
        Makes all its choices.
    strength : float
        The share of the decisions that a perturbation changes, rounded down, one at least.
    patience : int
        The number of perturbations without gain after which to start afresh.
    """

    def __init__(
        self,
        space: SearchSpace,
        generator: random.Random,
        strength: float = 0.2,
        patience: int = 8,
    ) -> None:
        super().__init__(space, generator)
        self._strength = strength
        self._patience = patience

    def walk(self, start: Point) -> Generator[Point, float, None]:
        """Climb, perturb and climb again."""
        optimum, secs = yield from self._climb(start)
        fruitless = 0
        while fruitless < self._patience:
            found, found_secs = yield from self._climb(self._perturb(optimum))
            if found_secs < secs:
                optimum, secs, fruitless = found, found_secs, 0
            else:
                fruitless += 1

    def _climb(self, start: Point) -> Generator[Point, float, tuple[Point, float]]:
        """Go to the first neighbour that is faster, until none is."""
        point = start
        secs = yield start
        improved = True
        while improved:
            improved = False
            neighbours = self.space.neighbours(point)
            self.generator.shuffle(neighbours)
            for neighbour in neighbours:
                neighbour_secs = yield neighbour
                if neighbour_secs < secs:
                    point, secs, improved = neighbour, neighbour_secs, True
                    break
        return point, secs

    def _perturb(self, point: Point) -> Point:
        sizes = self.space.sizes[point[0]]
        free = [place for place, size in enumerate(sizes, start=1) if size > 1]
        count = min(len(free), max(1, int(self._strength * len(free))))
        changed = list(point)
        for place in self.generator.sample(free, count):
            value = self.generator.randrange(sizes[place - 1] - 1)
            changed[place] = value + (value >= point[place])
        return tuple(changed)
