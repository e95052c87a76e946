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
"""Every point of a design space that MetaSchedule can reach, found by replay."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule import TuneContext

from ..search_strategy.candidates import Candidate, Replayer
from ..search_strategy.decision_kinds import (
    CATEGORICAL,
    COMPUTE_LOCATION,
    PARALLEL_EXTENT,
    PERFECT_TILE,
)
from ..search_strategy.decisions import Decision, Sketch, largest_parallel_extent
from ..search_strategy.neighbourhood import Point
from ..search_strategy.probing import Prober
from .space import DecisionLayout, SketchLayout


@dataclass(frozen=True)
class SketchTrace:
    """A sketch of a design space, with a trace that has its instructions."""

    sketch: Sketch
    trace: Trace

    def layout(self) -> SketchLayout:
        """What its decisions may be, as data."""
        return SketchLayout(tuple(self._layout(decision) for decision in self.sketch.decisions))

    def _layout(self, decision: Decision) -> DecisionLayout:
        inst = self.trace.insts[decision.inst]
        kind = decision.kind
        return DecisionLayout(
            kind.name,
            decision.start,
            decision.length,
            int(inst.attrs[1]) if kind == PERFECT_TILE else -1,
            tuple(float(c) for c in inst.attrs[0]) if kind == CATEGORICAL else (),
        )


@dataclass
class Enumeration:
    """The points of a design space.

    Parameters
    ----------
    sketches : list[SketchTrace]
        Its sketches.
    points : dict[tuple[int, Point], int | None]
        By sketch and realised decisions the structural hash of the module, or None where a
        schedule primitive or a postprocessor refused what was asked for.
    """

    sketches: list[SketchTrace]
    points: dict[tuple[int, Point], int | None] = field(default_factory=dict)

    @property
    def modules(self) -> dict[int, tuple[int, Point]]:
        """The first point of each distinct module, by structural hash."""
        first: dict[int, tuple[int, Point]] = {}
        for point, module in self.points.items():
            if module is not None:
                first.setdefault(module, point)
        return first


def sketches_of(context: TuneContext) -> list[SketchTrace]:
    """The distinct sketches of a context's design space."""
    found: dict[Sketch, Trace] = {}
    for schedule in context.generate_design_space():
        found.setdefault(Sketch.from_trace(schedule.trace), schedule.trace)
    return [SketchTrace(sketch, trace) for sketch, trace in found.items()]


def replayer_of(context: TuneContext, seed: int = 0) -> Replayer:
    """A replayer with the postprocessors of a context; the seed is for what samples."""
    return Replayer(context.mod, context.space_generator.postprocs, random.Random(seed))


def enumerate_space(
    context: TuneContext, progress: Callable[[int, int], None] = lambda done, total: None
) -> Enumeration:
    """Replay every combination of decisions, the distinct parallel plans among them.

    Tiles and categories are combined freely. Which compute locations are legal depends on what was
    decided before, and which parallel extents differ on everything else, so that these two are
    found by replay, in this order.

    Parameters
    ----------
    context : TuneContext
        A context of the workload with its design space.
    progress : Callable[[int, int], None]
        Told the combinations of tiles and categories that are done, and how many there are.

    Returns
    -------
    enumeration : Enumeration
        The points.
    """
    enumeration = Enumeration(sketches_of(context))
    replayer = replayer_of(context)
    limit = largest_parallel_extent(sketch.trace for sketch in enumeration.sketches)
    combinations = [list(_free_combinations(sketch)) for sketch in enumeration.sketches]
    total, done = sum(map(len, combinations)), 0
    for index, (sketch, points) in enumerate(zip(enumeration.sketches, combinations, strict=True)):
        search = _Enumerator(replayer, sketch, limit)
        for point in points:
            for asked, candidate in search.complete(point):
                if candidate is None:
                    enumeration.points.setdefault((index, asked), None)
                else:
                    realised = sketch.sketch.read(candidate.trace)
                    enumeration.points[index, realised] = candidate.module
            done += 1
            progress(done, total)
    return enumeration


class _Enumerator:
    """The points of one sketch."""

    def __init__(self, replayer: Replayer, sketch: SketchTrace, parallel_limit: int) -> None:
        self._replayer = replayer
        self._sketch = sketch.sketch
        self._trace = sketch.trace
        self._prober = Prober(replayer, parallel_limit)

    def complete(self, point: Point) -> Iterator[tuple[Point, Candidate | None]]:
        """All points that have the tiles and the categories of one."""
        decisions = self._sketch.decisions
        locations = [d for d in decisions if d.kind == COMPUTE_LOCATION]
        parallel = [d for d in decisions if d.kind == PARALLEL_EXTENT]
        for located in self._choose_locations(point, locations):
            for planned in self._choose_parallel(located, parallel):
                yield planned, self._replayer.replay(self._sketch.write(self._trace, planned))

    def _choose_locations(self, point: Point, decisions: list[Decision]) -> Iterator[Point]:
        if not decisions:
            yield point
            return
        first, *rest = decisions
        legal = self._prober.compute_locations(self._sketch, self._sketch.write(self._trace, point))
        for location in legal[first.inst]:
            yield from self._choose_locations(first.replace(point, (location,)), rest)

    def _choose_parallel(self, point: Point, decisions: list[Decision]) -> Iterator[Point]:
        if not decisions:
            yield point
            return
        first, *rest = decisions
        extents = self._prober.parallel_extents(self._sketch, self._trace, point, first)
        for extent in extents:
            yield from self._choose_parallel(first.replace(point, (extent,)), rest)


def _free_combinations(sketch: SketchTrace) -> Iterator[Point]:
    """All combinations of tiles and categories; the other decisions as the trace has them."""
    present = sketch.sketch.read(sketch.trace)
    values: list[list[Point]] = []
    for decision, layout in zip(sketch.sketch.decisions, sketch.layout().decisions, strict=True):
        own = decision.value(present)
        if decision.kind == PERFECT_TILE:
            extent = 1
            for factor in own:
                extent *= factor
            values.append(list(perfect_tiles(extent, len(own), layout.max_innermost_factor)))
        elif decision.kind == CATEGORICAL:
            values.append([(choice,) for choice in range(len(layout.candidates))])
        else:
            values.append([own])
    for choice in product(*values):
        yield tuple(value for part in choice for value in part)


def perfect_tiles(extent: int, length: int, max_innermost_factor: int = -1) -> Iterator[Point]:
    """The ordered factorisations of a loop's extent.

    Parameters
    ----------
    extent : int
        The extent.
    length : int
        The number of factors.
    max_innermost_factor : int
        The limit of the last factor; -1 for none.

    Yields
    ------
    tile : Point
        The factors, in lexical order.
    """
    if length == 1:
        if max_innermost_factor == -1 or extent <= max_innermost_factor:
            yield (extent,)
        return
    for factor in range(1, extent + 1):
        if extent % factor == 0:
            for rest in perfect_tiles(extent // factor, length - 1, max_innermost_factor):
                yield (factor, *rest)
