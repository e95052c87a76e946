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
"""Simulated annealing."""

import math
import random
from collections.abc import Callable, Generator

from . import Point, SearchSpace, Walk


class SimulatedAnnealing(Walk):
    """Simulated annealing on measurements, with the move and the schedule of AutoTVM.

    From ``SimulatedAnnealingOptimizer`` (``autotvm/tuner/sa_model_optimizer.py`` of TVM up to
    0.19): one random decision takes another random value; the temperature falls linearly from 1 to
    0; the move is accepted with probability ``exp(min(gain / (temperature + 1e-5), 1))``, where the
    gain is a difference of scores. AutoTVM's scores are a cost model's, of 128 chains at once.
    Here one chain is measured, and the score is the speed relative to the fastest so far, between
    0 and 1 as AutoTVM's normalised throughput is. To choose another sketch is a move too.

    Parameters
    ----------
    space : SearchSpace
        What to search.
    generator : random.Random
        Makes all its choices.
    spent : Callable[[], float]
        How much of the budget is spent, from 0 to 1: what the temperature falls with.
    """

    def __init__(
        self, space: SearchSpace, generator: random.Random, spent: Callable[[], float]
    ) -> None:
        super().__init__(space, generator)
        self._spent = spent
        self._best = math.inf

    def tell(self, point: Point, secs: float) -> None:
        """See `AskTell`."""
        super().tell(point, secs)
        self._best = min(self._best, secs)

    def walk(self, start: Point) -> Generator[Point, float, None]:
        """One chain."""
        point = start
        secs = yield start
        while True:
            proposal = self._move(point)
            proposed_secs = yield proposal
            if self._accept(secs, proposed_secs):
                point, secs = proposal, proposed_secs

    def _accept(self, secs: float, proposed_secs: float) -> bool:
        temperature = max(0.0, 1.0 - self._spent())
        gain = self._score(proposed_secs) - self._score(secs)
        probability = math.exp(min(gain / (temperature + 1e-5), 1.0))
        return self.generator.random() < probability

    def _score(self, secs: float) -> float:
        return self._best / secs if math.isfinite(secs) else 0.0

    def _move(self, point: Point) -> Point:
        """Change one decision; the point itself where there is nothing to change."""
        sizes = (len(self.space.sizes), *self.space.sizes[point[0]])
        free = [place for place, size in enumerate(sizes) if size > 1]
        if not free:
            return point
        place = self.generator.choice(free)
        value = self.generator.randrange(sizes[place] - 1)
        value += value >= point[place]
        if place == 0:
            # The decisions of one sketch say nothing in another.
            return (value, *map(self.generator.randrange, self.space.sizes[value]))
        return (*point[:place], value, *point[place + 1 :])
