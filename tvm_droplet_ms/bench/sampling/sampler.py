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
"""Points of a design space that is too large to enumerate: at random, and near known ones."""

import random
from collections.abc import Sequence
from math import prod

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import TuneContext

from ...search_strategy.candidates import Candidate
from ...search_strategy.design_spaces import SpacePoint
from ...search_strategy.factorisations import factorisations
from ...search_strategy.neighbourhood import Point
from ..design_space import DesignSpace
from ..sketch_layout import DecisionLayout

MAX_CHANGES = 4
"""Maximum number of decisions in which a nearby point differs."""

Drawn = tuple[SpacePoint, Candidate]
"""A point and the candidate that TVM makes of it."""


class Sampler:
    """Draws points of a design space.

    Parameters
    ----------
    context : TuneContext
        Context of the workload with its design space.
    seed : int
        Seed of the draws.
    """

    def __init__(self, context: TuneContext, seed: int) -> None:
        self.space = DesignSpace(context, seed)
        self.layouts = self.space.layouts()
        self._generator = random.Random(seed)

    def module(self, place: SpacePoint) -> IRModule:
        """The scheduled module of a point that was drawn before."""
        candidate = self.space.realise(place)
        if candidate is None:
            raise ValueError(f"point {place} does not replay, expected one that was drawn")
        return candidate.schedule.mod

    def random(self) -> Drawn | None:
        """Draw a point by TVM's own sampling; None where it is refused."""
        sketch = self._generator.randrange(len(self.layouts))
        return self._drawn(self.space.draw(sketch))

    def near(self, places: Sequence[SpacePoint]) -> Drawn | None:
        """Change one to four decisions of one of the points; None where the result is refused."""
        sketch, point = self._generator.choice(places)
        for _ in range(self._generator.randint(1, MAX_CHANGES)):
            decision = self._generator.choice(self.layouts[sketch].decisions)
            end = decision.start + decision.length
            value = self._value(decision, point[decision.start : end])
            point = (*point[: decision.start], *value, *point[end:])
        return self._drawn(self.space.realise((sketch, point)))

    def _drawn(self, candidate: Candidate | None) -> Drawn | None:
        place = None if candidate is None else self.space.places.find(candidate.trace)
        return None if candidate is None or place is None else (place, candidate)

    def _value(self, decision: DecisionLayout, present: Point) -> Point:
        if decision.kind == "SamplePerfectTile":
            extent, limit = prod(present), decision.max_innermost_factor
            tiles = [tuple(t) for t in factorisations(extent, decision.length, limit).tolist()]
            # Half of the time a tile that differs in two positions only.
            close = [t for t in tiles if sum(a != b for a, b in zip(t, present, strict=True)) == 2]
            return self._generator.choice(
                close if close and self._generator.random() < 0.5 else tiles
            )
        if decision.kind == "SampleCategorical":
            return (self._generator.randrange(len(decision.candidates)),)
        if decision.kind == "SampleComputeLocation":
            # TVM takes the next legal location for an illegal one.
            return (max(-2, present[0] + self._generator.choice((-2, -1, 1, 2))),)
        return (2 ** self._generator.randint(0, 6),)
