# SPDX-License-Identifier: Apache-2.0
"""Decisions measured on other tasks: candidates for the first measurements of any task.

The best schedule of a task is often also the best one of a similar task with other loop extents. So
the nearest known schedules, refitted, are candidates beside random schedules: they are what TopHub
is to AutoTVM, for loops of any extent.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import tvm_ffi

from tvm.s_tir import Trace
from tvm.s_tir.schedule import Instruction
from tvm.target import Target

from ..design_space.factorizations import extent_distance, refit_tile
from .design_spaces import EncodedSpaces
from .published.decision_kinds import CATEGORICAL, DECISION_KINDS, PERFECT_TILE, DecisionKind
from .published.decisions import Sketch, SpacePoint
from .published.neighborhood import Point

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


FIND_FILE = "tvm_droplet_ms.known_schedules"
"""The global function that returns the paths of the files for ``"auto"`` and a target, joined by
``os.pathsep``. This package registers it. Without it, ``"auto"`` means no known schedules."""

KnownLike: TypeAlias = str | os.PathLike[str] | None
"""``"auto"`` for the schedules of the package, the path of a file, or None for no schedules."""


def find_schedules(known: KnownLike, target: Target) -> tuple[TunedTask, ...]:
    """The tuned tasks of the files, each of which is read once.

    ``target``: the target to tune for. Raises the errors of ``check_known``.
    """
    if known == "auto":
        find = tvm_ffi.get_global_func(FIND_FILE, allow_missing=True)
        paths = [] if find is None else str(find(target)).split(os.pathsep)
        return tuple(task for path in paths for task in _read_once(Path(path)))
    check_known(known)
    return () if known is None else _read_once(Path(known))


def check_known(known: KnownLike) -> None:
    """Read a file of known schedules, if one is given.

    Raises ``ValueError`` if the file does not exist, or holds something else; see
    ``read_schedules``.
    """
    if known is None or known == "auto":
        return
    if not os.path.isfile(known):
        raise ValueError(
            f"known is {os.fspath(known)!r}, and there is no such file; expected 'auto', the path "
            "of a file of known schedules, or None"
        )
    _read_once(Path(known))


@cache
def _read_once(path: Path) -> tuple[TunedTask, ...]:
    return read_schedules(path)


def write_schedules(path: Path, tuned: Iterable[TunedTask]) -> None:
    """Write the decisions, one line of JSON per task, sorted: equal sets give equal files."""
    lines = sorted(
        json.dumps([task.sketch, [[k, *v] for k, v in zip(task.kinds, task.values, strict=True)]])
        for task in tuned
    )
    path.write_text("".join(f"{line}\n" for line in lines))


def read_schedules(path: Path) -> tuple[TunedTask, ...]:
    """Read a file of ``write_schedules``.

    Raises ``ValueError`` for an invalid line; the message names the file and the line.
    """
    tuned = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            tuned.append(_parse(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"line {number} of {path} holds no schedule ({error}); expected what "
                "write_schedules writes: make the file anew"
            ) from None
    return tuple(tuned)


def _parse(line: Any) -> TunedTask:
    sketch, decisions = line
    kinds = tuple(kind for kind, *_ in decisions)
    values = tuple(tuple(value) for _, *value in decisions)
    if not isinstance(sketch, str) or not set(kinds) <= set(DECISION_KINDS):
        raise ValueError("its sketch is no text, or a decision's kind is unknown")
    if not all(isinstance(number, int) for value in values for number in value):
        raise TypeError("a decision's value is no integer")
    return TunedTask(sketch, kinds, values)
