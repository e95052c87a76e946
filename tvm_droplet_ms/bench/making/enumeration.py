# SPDX-License-Identifier: Apache-2.0
"""Enumerates by replay every point of a design space that MetaSchedule can reach."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod

from tvm.s_tir.meta_schedule import TuneContext

from ...design_space.factorizations import factorizations
from ...search_strategy.published.candidates import Candidate
from ...search_strategy.published.decision_kinds import (
    CATEGORICAL,
    COMPUTE_LOCATION,
    PARALLEL_EXTENT,
    PERFECT_TILE,
)
from ...search_strategy.published.decisions import (
    Decision,
    Prober,
    SpacePoint,
    largest_parallel_extent,
)
from ...search_strategy.published.neighborhood import Point
from ..design_space import DesignSpace


@dataclass
class Enumeration:
    """All points of a design space.

    ``points``: the structural hash of each point's module; None if a schedule primitive or a
    postprocessor rejected the point.
    """

    design_space: DesignSpace
    points: dict[SpacePoint, int | None] = field(default_factory=dict)

    @property
    def modules(self) -> dict[int, SpacePoint]:
        """First point of each distinct module, by structural hash."""
        first: dict[int, SpacePoint] = {}
        for point, module in self.points.items():
            if module is not None:
                first.setdefault(module, point)
        return first


def enumerate_space(
    context: TuneContext, progress: Callable[[int, int], None] = lambda done, total: None
) -> Enumeration:
    """Replay every combination of decisions, including each distinct parallel plan.

    Tiles and categories are combined freely. The legal compute locations depend on earlier
    decisions, and the distinct parallel extents depend on all other decisions. Both are found by
    replay, in this order. Returns the points.
    """
    space = DesignSpace(context)
    enumeration = Enumeration(space)
    sketches = range(len(space.sketches))
    limit = largest_parallel_extent(space.trace((i, space.start(i))) for i in sketches)
    combinations = [list(_free_combinations(space, sketch)) for sketch in sketches]
    total, done = sum(map(len, combinations)), 0
    for sketch, points in enumerate(combinations):
        enumerator = _Enumerator(space, sketch, limit)
        for point in points:
            for asked, candidate in enumerator.complete(point):
                if candidate is None:
                    enumeration.points.setdefault((sketch, asked), None)
                else:
                    realized = space.read(sketch, candidate.trace)
                    enumeration.points[sketch, realized] = candidate.module
            done += 1
            progress(done, total)
    return enumeration


class _Enumerator:
    """Enumerates one sketch."""

    def __init__(self, space: DesignSpace, sketch: int, parallel_limit: int) -> None:
        self._space = space
        self._index = sketch
        self._sketch = space.sketches[sketch]
        self._prober = Prober(space.replayer, parallel_limit)

    def complete(self, point: Point) -> Iterator[tuple[Point, Candidate | None]]:
        """Yield all points with the tiles and the categories of a point, and their candidates."""
        found_by_replay = [
            decision
            for kind in (COMPUTE_LOCATION, PARALLEL_EXTENT)
            for decision in self._sketch.decisions
            if decision.kind == kind
        ]
        for chosen in self._chosen(point, found_by_replay):
            yield chosen, self._space.realize((self._index, chosen))

    def _chosen(self, point: Point, decisions: list[Decision]) -> Iterator[Point]:
        if not decisions:
            yield point
            return
        first, *rest = decisions
        for value in self._values(point, first):
            yield from self._chosen(first.replace(point, (value,)), rest)

    def _values(self, point: Point, decision: Decision) -> Iterable[int]:
        trace = self._space.trace((self._index, point))
        if decision.kind == COMPUTE_LOCATION:
            return self._prober.compute_locations(self._sketch, trace)[decision.inst]
        return self._prober.parallel_extents(self._sketch, trace, point, decision)


def _free_combinations(space: DesignSpace, sketch: int) -> Iterator[Point]:
    """Yield all combinations of tiles and categories; the other decisions stay as generated."""
    present = space.start(sketch)
    values: list[list[Point]] = []
    layouts = space.layout(sketch)
    for decision, layout in zip(space.sketches[sketch].decisions, layouts, strict=True):
        own = decision.value(present)
        if decision.kind == PERFECT_TILE:
            tiles = factorizations(prod(own), len(own), layout.max_innermost_factor)
            values.append([tuple(tile) for tile in tiles.tolist()])
        elif decision.kind == CATEGORICAL:
            values.append([(choice,) for choice in range(len(layout.candidates))])
        else:
            values.append([own])
    for choice in product(*values):
        yield tuple(value for part in choice for value in part)
