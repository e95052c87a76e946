# SPDX-License-Identifier: Apache-2.0
"""The best decisions of a tuned task, and their refitting to tasks with other extents."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tvm.s_tir import Trace
from tvm.s_tir.schedule import Instruction

from ...design_space.factorizations import extent_distance, refit_tile
from ..design_spaces import EncodedSpaces
from ..published.decision_kinds import CATEGORICAL, PERFECT_TILE, DecisionKind
from ..published.decisions import Sketch, SpacePoint
from ..published.neighborhood import Point

OTHER_SKETCH = 4.0
"""The distance, in doublings of extents, for another operation, such as another activation."""


@dataclass(frozen=True)
class TunedTask:
    """The best decisions of a task.

    ``sketch``: identifies the sketch of its best schedule; see ``sketch_id``.
    """

    sketch: str
    kinds: tuple[str, ...]
    values: tuple[Point, ...]

    @staticmethod
    def from_trace(trace: Trace) -> "TunedTask":
        """Read the decisions of a recorded trace."""
        simple = trace.simplified(remove_postproc=True)
        sketch = Sketch.from_trace(simple)
        point = sketch.read(simple)
        return TunedTask(
            sketch_id(sketch),
            tuple(decision.kind.name for decision in sketch.decisions),
            tuple(decision.value(point) for decision in sketch.decisions),
        )

    @property
    def extents(self) -> list[int]:
        """The extents of the tiled loops."""
        pairs = zip(self.kinds, self.values, strict=True)
        return [prod(value) for kind, value in pairs if kind == PERFECT_TILE.name]

    @property
    def shape(self) -> tuple[tuple[str, int], ...]:
        """The kind and the number of values of each decision, which neighbors share."""
        pairs = zip(self.kinds, self.values, strict=True)
        return tuple((kind, len(value)) for kind, value in pairs)


def sketch_id(sketch: Sketch) -> str:
    """A short identifier of a sketch, equal for equal instructions in all processes."""
    return hashlib.sha256("\n".join(sketch.key).encode()).hexdigest()[:16]


def nearest_points(
    tuned: Iterable[TunedTask], spaces: EncodedSpaces, count: int
) -> list[SpacePoint]:
    """The decisions of the nearest tuned tasks, refitted to the design spaces of another task.

    Returns at most `count` points, the nearest first, each once. Only tasks with the same kinds of
    decisions are neighbors.
    """
    fits = [_Fit(spaces, index) for index in range(len(spaces.sketches))]
    found = [
        (fit.distance(task), fit, task)
        for task in dict.fromkeys(tuned)
        for fit in fits
        if fit.task.shape == task.shape
    ]
    found.sort(key=lambda entry: entry[0])
    points: dict[SpacePoint, None] = {}
    for _, fit, task in found:
        if len(points) >= count:
            break
        points[fit.refit(task)] = None
    return list(points)


def points_of_same_loops(
    tuned: Iterable[TunedTask], spaces: EncodedSpaces, preferred: int
) -> list[SpacePoint]:
    """The decisions of the tuned tasks that tile loops of the same extents.

    ``preferred``: the index of the sketch to use for decisions from a sketch that the task lacks.
    Returns the points in the order of the tasks, each once.
    """
    fits = [_Fit(spaces, index) for index in range(len(spaces.sketches))]
    fits.sort(key=lambda fit: fit.index != preferred)
    points: dict[SpacePoint, None] = {}
    for task in tuned:
        alike = [
            fit for fit in fits if fit.task.shape == task.shape and fit.task.extents == task.extents
        ]
        same = [fit for fit in alike if fit.task.sketch == task.sketch]
        points |= dict.fromkeys(fit.refit(task) for fit in (same or alike)[:1])
    return list(points)


class _Fit:
    """Fits tuned tasks to a design space."""

    def __init__(self, spaces: EncodedSpaces, index: int) -> None:
        self.index = index
        start = (index, spaces.start(index))
        trace = spaces.trace(start)
        self.task = TunedTask.from_trace(trace)
        self._extents = self.task.extents
        self._limits = [
            _limit(decision.kind, trace.insts[decision.inst])
            for decision in spaces.sketches[index].decisions
        ]

    def distance(self, tuned: TunedTask) -> float:
        """The distance of a tuned task from this one."""
        other = 0.0 if tuned.sketch == self.task.sketch else OTHER_SKETCH
        return extent_distance(tuned.extents, self._extents) + other

    def refit(self, tuned: TunedTask) -> SpacePoint:
        """The decisions of a tuned task in this design space."""
        point: Point = ()
        values = zip(tuned.kinds, tuned.values, self.task.values, self._limits, strict=True)
        for kind, value, start, limit in values:
            if kind == PERFECT_TILE.name:
                value = refit_tile(value, prod(start), limit)
            elif kind == CATEGORICAL.name:
                value = (min(value[0], limit),)
            point += value
        return self.index, point


def _limit(kind: DecisionKind, inst: Instruction) -> int:
    """The limit of the innermost factor, or the last index of a choice; -1 for none."""
    if kind == PERFECT_TILE:
        return PERFECT_TILE.max_innermost_factor(inst)
    return len(inst.attrs[0]) - 1 if kind == CATEGORICAL else -1
