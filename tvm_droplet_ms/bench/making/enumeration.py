# SPDX-License-Identifier: Apache-2.0
"""Enumerates by replay every point of a design space that MetaSchedule can reach."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from tvm.s_tir.meta_schedule import TuneContext

from ...design_space.factorizations import factorizations
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
        prober = Prober(space.replayer, limit)
        by_replay = [
            decision
            for kind in (COMPUTE_LOCATION, PARALLEL_EXTENT)
            for decision in space.sketches[sketch].decisions
            if decision.kind == kind
        ]
        for point in points:
            for asked in _complete(space, sketch, prober, point, by_replay):
                candidate = space.realize((sketch, asked))
                if candidate is None:
                    enumeration.points.setdefault((sketch, asked), None)
                else:
                    realized = space.read(sketch, candidate.trace)
                    enumeration.points[sketch, realized] = candidate.module
            done += 1
            progress(done, total)
    return enumeration


def _complete(
    space: DesignSpace, sketch: int, prober: Prober, point: Point, decisions: Sequence[Decision]
) -> Iterator[Point]:
    """Yield all points with the tiles and the categories of a point.

    ``decisions``: the decisions whose values are found by replay, in this order.
    """
    if not decisions:
        yield point
        return
    first, *rest = decisions
    trace = space.trace((sketch, point))
    values: Iterable[int] = (
        prober.compute_locations(space.sketches[sketch], trace)[first.inst]
        if first.kind == COMPUTE_LOCATION
        else prober.parallel_extents(space.sketches[sketch], trace, point, first)
    )
    for value in values:
        chosen = first.replace(point, (value,))
        yield from _complete(space, sketch, prober, chosen, rest)


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
