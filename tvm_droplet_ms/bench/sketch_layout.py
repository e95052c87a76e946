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
"""Decisions of a design space's sketches, as data. Imports no TVM."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..search_strategy.neighbourhood import Axis, ChoiceAxis, OrderedAxis, TileAxis


@dataclass(frozen=True)
class DecisionLayout:
    """One decision of a sketch, and its limits.

    Parameters
    ----------
    kind : str
        The kind of its instruction: "SamplePerfectTile", "SampleCategorical",
        "SampleComputeLocation" or "Annotate", the last for a parallel extent.
    start : int
        Index of its first integer in a point.
    length : int
        Number of its integers: the positions of a tile, else 1.
    max_innermost_factor : int
        The limit of a tile's innermost position; -1 for none.
    candidates : tuple[float, ...]
        Candidates of a ``SampleCategorical``; empty for the others.
    """

    kind: str
    start: int
    length: int
    max_innermost_factor: int = -1
    candidates: tuple[float, ...] = ()

    def axis(self, values: Sequence[int]) -> Axis:
        """Axis of the decision in the adjacent neighbourhood.

        Parameters
        ----------
        values : Sequence[int]
            Values that occur, ascending; used for compute locations and parallel extents.
        """
        if self.kind == "SamplePerfectTile":
            return TileAxis(self.start, self.length, self.max_innermost_factor)
        if self.kind == "SampleCategorical":
            ordered = list(self.candidates) in (
                sorted(self.candidates),
                sorted(self.candidates, reverse=True),
            )
            if not ordered:
                return ChoiceAxis(self.start, len(self.candidates))
            return OrderedAxis(self.start, tuple(range(len(self.candidates))))
        return OrderedAxis(self.start, tuple(values))


@dataclass(frozen=True)
class SketchLayout:
    """The decisions of one sketch, in the order of its trace."""

    decisions: tuple[DecisionLayout, ...]
