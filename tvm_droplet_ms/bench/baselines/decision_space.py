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
"""A design space as vectors of indices: all that the ask/tell algorithms see of TVM."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm.s_tir import Trace

from ...search_strategy.candidates import Candidate, Replayer
from ...search_strategy.decision_kinds import COMPUTE_LOCATION, PARALLEL_EXTENT
from ...search_strategy.decisions import Decision, Sketch, largest_parallel_extent
from ...search_strategy.design_spaces import DesignSpaces
from ...search_strategy.factorisations import factorisations
from ...search_strategy.neighbourhood import (
    Axis,
    ChoiceAxis,
    Direction,
    Neighbourhood,
    OrderedAxis,
    TileAxis,
)
from ...search_strategy.probing import Prober
from .ask_tell import Point

_DRAWS = 16
"""Samples of a sketch that show the values of its decisions."""

_TRIES = 8
"""Samples by TVM for a random point, before the indices are drawn instead."""

_DEPENDENT = (COMPUTE_LOCATION, PARALLEL_EXTENT)
"""Decision kinds with values that may give the same module, depending on other decisions."""


@dataclass(frozen=True)
class DecisionValues:
    """A decision and its possible values.

    Parameters
    ----------
    decision : Decision
        The decision; its ``kind`` is that of its instruction.
    values : tuple[tuple[int, ...], ...]
        Its values as they stand in ``Sketch.read``: the ordered factorisations within the limit
        of the innermost factor, sorted from the innermost outwards; the indices of a categorical;
        the compute locations that were legal in some sample; or the parallel extents, powers of
        two and the largest: whatever loops are fused, a power of two lies between the extents of
        two plans of a nest.
    ordered : bool
        True if the order of the values means something.
    """

    decision: Decision
    values: tuple[tuple[int, ...], ...]
    ordered: bool


class DecisionSpace:
    """The decisions of a task's design spaces, as a `SearchSpace`.

    A point is ``(sketch, index, ...)``: which design space, then for each of its decisions the
    index of its value. Compute locations and parallel extents are realised by TVM as its replay
    does: an illegal location becomes the one before it.

    Parameters
    ----------
    traces : Sequence[Trace]
        The traces of the design spaces.
    replayer : Replayer
        Replays traces on the workload.

    Attributes
    ----------
    decisions : tuple[tuple[DecisionValues, ...], ...]
        The decisions of each sketch, in the order of the instructions.
    sizes : tuple[tuple[int, ...], ...]
        Number of values of each.
    ordered : tuple[tuple[bool, ...], ...]
        True for each whose values have an order.
    """

    def __init__(self, traces: Sequence[Trace], replayer: Replayer) -> None:
        self._replayer = replayer
        extents = _parallel_extents(largest_parallel_extent(traces))
        self._places = DesignSpaces(traces)
        self._neighbourhoods: list[Neighbourhood] = []
        self._realised: dict[Point, Candidate | None] = {}
        values = []
        for sketch in range(len(traces)):
            drawn = _draw(self._places, sketch, replayer)
            neighbourhood = _neighbourhood(self._places, sketch, drawn, replayer, extents)
            self._neighbourhoods.append(neighbourhood)
            values.append(_decision_values(self._places.sketches[sketch], neighbourhood, drawn))
        self.decisions = tuple(values)
        self.sizes = tuple(tuple(len(d.values) for d in ds) for ds in self.decisions)
        self.ordered = tuple(tuple(d.ordered for d in ds) for ds in self.decisions)

    def decode(self, point: Point) -> tuple[int, ...]:
        """The decisions of a point, one after the other, as ``Sketch.read`` gives them."""
        chosen = zip(self.decisions[point[0]], point[1:], strict=True)
        return tuple(part for decision, index in chosen for part in decision.values[index])

    def encode(self, sketch: int, made: tuple[int, ...]) -> Point | None:
        """The point of a sketch's decisions; None where one has a value that is not known."""
        indices = []
        for decision in self.decisions[sketch]:
            value = decision.decision.value(made)
            if value not in decision.values:
                return None
            indices.append(decision.values.index(value))
        return (sketch, *indices)

    def sample(self, generator: random.Random) -> Point:
        """A random point: TVM's own sampling, as ``ReplayTrace`` does, of a random parallel extent.

        If nothing that TVM samples passes the postprocessors, every index is drawn uniformly.
        """
        for _ in range(_TRIES):
            sketch = generator.randrange(len(self.decisions))
            made = list(self._places.start(sketch))
            for decision in self.decisions[sketch]:
                if decision.decision.kind == PARALLEL_EXTENT:
                    (made[decision.decision.start],) = generator.choice(decision.values)
            planned = self._places.trace((sketch, tuple(made)))
            candidate = self._replayer.replay(Trace(planned.insts, {}))
            if candidate is None:
                continue
            point = self.encode(sketch, _read(self._places, sketch, candidate.trace))
            if point is not None:
                self._realised.setdefault(point, candidate)
                return point
        sketch = generator.randrange(len(self.decisions))
        return (sketch, *map(generator.randrange, self.sizes[sketch]))

    def neighbours(self, point: Point) -> list[Point]:
        """The adjacent points: the smallest step of each decision that makes another module."""
        neighbourhood = self._neighbourhoods[point[0]]
        directions = neighbourhood.directions(self.decode(point))
        stepped = (self._step(point, neighbourhood, direction) for direction in directions)
        return [neighbour for neighbour in stepped if neighbour is not None]

    def realise(self, point: Point) -> Candidate | None:
        """The module of a point, by replay; None if the replay or a postprocessor fails."""
        if point not in self._realised:
            trace = self._places.trace((point[0], self.decode(point)))
            self._realised[point] = self._replayer.replay(trace)
        return self._realised[point]

    def _step(
        self, point: Point, neighbourhood: Neighbourhood, direction: Direction
    ) -> Point | None:
        """Step in a direction, skipping values equivalent to the current one."""
        kind = self.decisions[point[0]][direction.axis].decision.kind
        stepped = neighbourhood.step(self.decode(point), direction)
        while stepped is not None:
            neighbour = self.encode(point[0], stepped)
            if neighbour is None or kind not in _DEPENDENT or not self._same(point, neighbour):
                return neighbour
            stepped = neighbourhood.step(stepped, direction)
        return None

    def _same(self, first: Point, second: Point) -> bool:
        a, b = self.realise(first), self.realise(second)
        return a is not None and b is not None and a.module == b.module


def _parallel_extents(limit: int) -> tuple[int, ...]:
    powers = (1 << exponent for exponent in range(limit.bit_length()))
    return tuple(sorted({*powers, limit}))


def _read(places: DesignSpaces, sketch: int, trace: Trace) -> tuple[int, ...]:
    return places.sketches[sketch].read(trace.simplified(remove_postproc=True))


def _draw(places: DesignSpaces, sketch: int, replayer: Replayer) -> list[tuple[int, ...]]:
    """Points of a sketch: the generated one, and some that TVM samples."""
    start = places.start(sketch)
    insts = places.trace((sketch, start)).insts
    draws = _DRAWS if places.sketches[sketch].decisions else 0
    drawn = (replayer.replay(Trace(insts, {})) for _ in range(draws))
    return [start, *(_read(places, sketch, found.trace) for found in drawn if found is not None)]


def _neighbourhood(
    places: DesignSpaces,
    sketch: int,
    points: Sequence[tuple[int, ...]],
    replayer: Replayer,
    extents: tuple[int, ...],
) -> Neighbourhood:
    """Neighbourhood of a sketch over all compute locations that are legal at some point."""
    prober = Prober(replayer, extents[-1])
    locations: dict[int, set[int]] = {}
    for point in points:
        trace = places.trace((sketch, point))
        for inst, legal in prober.compute_locations(places.sketches[sketch], trace).items():
            locations.setdefault(inst, set()).update(legal)
    return places.sketches[sketch].neighbourhood(
        places.trace((sketch, points[0])),
        lambda decision: _LegalValues(tuple(sorted(locations.get(decision.inst, ()))), extents),
    )


@dataclass(frozen=True)
class _LegalValues:
    """Values that are legal at some point of a sketch."""

    locations: tuple[int, ...]
    extents: tuple[int, ...]

    def compute_locations(self) -> tuple[int, ...]:
        return self.locations

    def parallel_extents(self) -> tuple[int, ...]:
        return self.extents


def _decision_values(
    sketch: Sketch, neighbourhood: Neighbourhood, points: Sequence[tuple[int, ...]]
) -> tuple[DecisionValues, ...]:
    return tuple(
        DecisionValues(decision, _values(axis, decision, points), not isinstance(axis, ChoiceAxis))
        for decision, axis in zip(sketch.decisions, neighbourhood.axes, strict=True)
    )


def _values(
    axis: Axis, decision: Decision, made: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    if isinstance(axis, TileAxis):
        # More than one where a tiled extent depends on earlier decisions.
        extents = {prod(decision.value(point)) for point in made}
        tiles = (
            tuple(tile)
            for extent in extents
            for tile in factorisations(extent, axis.length, axis.max_innermost_factor).tolist()
        )
        return tuple(sorted(tiles, key=lambda tile: tile[::-1]))
    if isinstance(axis, OrderedAxis):
        return tuple((value,) for value in axis.values)
    assert isinstance(axis, ChoiceAxis)
    return tuple((value,) for value in range(axis.count))
