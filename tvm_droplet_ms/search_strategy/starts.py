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
"""Where a descent starts: the best few that were measured, and not near-copies of one another."""

from collections.abc import Iterable
from dataclasses import dataclass

from .decisions import Sketch
from .history import Measured
from .neighbourhood import Point

_NEAR_COPY = 0.25
"""Two traces of one sketch that differ in fewer of their decisions than this lie in one basin as
far as one can tell before descending."""


@dataclass(frozen=True)
class Start:
    """A measured trace to descend from.

    Parameters
    ----------
    measured : Measured
        The trace and its times.
    sketch : Sketch
        Its sketch.
    point : Point
        Its decisions.
    """

    measured: Measured
    sketch: Sketch
    point: Point

    @staticmethod
    def of(measured: Measured) -> "Start":
        """Read the decisions of a measured trace."""
        sketch = Sketch.of(measured.trace)
        return Start(measured, sketch, sketch.read(measured.trace))

    def is_near(self, other: "Start") -> bool:
        """Whether both have one sketch and nearly the same decisions."""
        if self.sketch.key != other.sketch.key:
            return False
        decisions = self.sketch.decisions
        differing = sum(
            decision.of(self.point) != decision.of(other.point) for decision in decisions
        )
        return differing < _NEAR_COPY * len(decisions) or differing == 0


def choose_starts(ranking: Iterable[Measured], count: int) -> list[Start]:
    """The best few of a ranking that are not near-copies of each other.

    Parameters
    ----------
    ranking : Iterable[Measured]
        The fastest first.
    count : int
        The most to choose.
    """
    chosen: list[Start] = []
    for measured in ranking:
        if len(chosen) == count:
            break
        start = Start.of(measured)
        if not any(start.is_near(other) for other in chosen):
            chosen.append(start)
    return chosen
