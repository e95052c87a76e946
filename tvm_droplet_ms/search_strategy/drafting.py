# SPDX-License-Identifier: Apache-2.0
"""Ranks points by a draft, a score of schedules before any replay."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import tvm_ffi

from tvm.s_tir import Schedule
from tvm.target import Target

from .candidates import ScreenedReplayer
from .design_spaces import EncodedSpaces
from .published.decisions import SpacePoint
from .published.neighborhood import Point
from .surrogate.encoding import LatentSpace

FIND_DRAFT = "tvm_droplet_ms.find_draft"
"""The global function that finds the draft for a target: ``(target) -> Draft | None``. This package
registers it. Without it, ``"auto"`` means no draft."""


class TaskDraft(Protocol):
    """A draft of one task."""

    random_share: float
    """Share of the schedules that are drawn as TVM draws them, from 0 to 1. They cover the blind
    spots of the draft."""

    def scores(self, sketch: int, points: np.ndarray) -> np.ndarray:
        """The expected throughput of points of a sketch, relative to the best.

        ``points``: their decisions, of shape ``(points, integers)``. Returns values of shape
        ``(points,)``: NaN for unknown points, negative infinity for invalid points.
        """

    def summary(self) -> str:
        """One line about the task, for the log."""


@runtime_checkable
class Mask(Protocol):
    """A draft of one task that knows which schedules are refused."""

    def is_possible(self, sketch: int, points: np.ndarray) -> np.ndarray:
        """False for invalid points, True for all others; see ``TaskDraft.scores``."""


def possible_points(draft: TaskDraft | None, points: Iterable[SpacePoint]) -> list[SpacePoint]:
    """The points that a draft does not know to be refused, in their order."""
    points = list(points)
    if not isinstance(draft, Mask) or not points:
        return points
    is_possible = np.ones(len(points), dtype=bool)
    sketches = np.array([sketch for sketch, _ in points])
    for sketch in np.unique(sketches):
        (places,) = np.nonzero(sketches == sketch)
        decisions = np.array([points[place][1] for place in places], dtype=np.int64)
        is_possible[places] = draft.is_possible(int(sketch), decisions)
    return [point for point, is_one in zip(points, is_possible, strict=True) if is_one]


class Draft(Protocol):
    """Scores schedules by their decisions alone, before anything is measured."""

    def begin(self, spaces: EncodedSpaces, replayer: ScreenedReplayer) -> TaskDraft:
        """Make the draft of a task."""


DraftLike: TypeAlias = Literal["auto"] | Draft | None


def check_draft(draft: Any) -> None:
    """Raise ``ValueError`` for an invalid draft."""
    is_name = isinstance(draft, str) and draft == "auto"
    if draft is not None and not is_name and not callable(getattr(draft, "begin", None)):
        raise ValueError(
            f'draft is {draft!r}, expected "auto", None or an object with `begin`, such as '
            "tvm_droplet_ms.cost_model.draft.SymbolDraft.from_file()"
        )


def find_draft(draft: DraftLike, target: Target) -> Draft | None:
    """The draft for a target; ``"auto"`` means the draft that comes with the package."""
    if draft != "auto":
        return draft
    find = tvm_ffi.get_global_func(FIND_DRAFT, allow_missing=True)
    found: Draft | None = None if find is None else find(target)
    return found


class LaunchMask:
    """Refuses schedules that a draft knows to be refused, such as random schedules from TVM.

    It is applied like a postprocessor, but before the others, because ``VerifyGPUCode`` takes most
    of the time of a replay. ``draft``: the draft of the task, which is set after the replayer is
    made; None accepts all schedules.
    """

    def __init__(self, spaces: EncodedSpaces) -> None:
        self._spaces = spaces
        self.draft: TaskDraft | None = None

    def apply(self, schedule: Schedule) -> bool:
        """True unless a schedule is known to be refused."""
        if not isinstance(self.draft, Mask):
            return True
        point = self._spaces.find(schedule.trace)
        return point is None or bool(possible_points(self.draft, [point]))

    def __str__(self) -> str:
        return "LaunchMask"


DRAFT_POINTS = 6000
"""Number of points drafted for a batch. A third is drawn at random. If there are good points, a
third has some of their decisions changed, and a third is recombined from them."""

Score = Callable[[int, np.ndarray], np.ndarray]
"""Scores the points of a sketch, whose decisions are rows; higher is better."""


class LatentDraft:
    """Drafts points of all design spaces. ``generator``: seeds all random choices."""

    def __init__(self, spaces: EncodedSpaces, generator: random.Random) -> None:
        self._spaces = spaces
        self._generator = np.random.default_rng(generator.getrandbits(64))

    def best(
        self, seen: Iterable[SpacePoint], parents: Iterable[SpacePoint], score: Score, count: int
    ) -> list[SpacePoint]:
        """The points with the highest scores above negative infinity, each once, the highest first.

        ``seen``: points that show which values the decisions have. ``parents``: good points.
        ``count``: the maximum number of points to return.
        """
        seen_of, parents_of = _by_sketch(seen), _by_sketch(parents)
        found: list[tuple[float, SpacePoint]] = []
        for sketch in range(len(self._spaces.sketches)):
            space = self._spaces.latent_space(sketch, seen_of[sketch])
            points = np.unique(self._points(space, parents_of[sketch]), axis=0)
            scores = score(sketch, points)
            known = np.flatnonzero(scores > -np.inf)
            for row in known[np.argsort(-scores[known])][:count]:
                found.append((float(scores[row]), (sketch, tuple(points[row].tolist()))))
        found.sort(key=lambda pair: -pair[0])
        return [point for _, point in found[:count]]

    def _points(self, space: LatentSpace, parents: Sequence[Point]) -> np.ndarray:
        share = DRAFT_POINTS // (3 * len(self._spaces.sketches))
        drawn = space.draw(share, self._generator)
        if not parents:
            return drawn
        good = np.array(parents, dtype=np.int64)
        changed = space.change(good, share, self._generator)
        return np.vstack([drawn, changed, space.recombine(good, share, self._generator)])


def _by_sketch(points: Iterable[SpacePoint]) -> defaultdict[int, list[Point]]:
    found: defaultdict[int, list[Point]] = defaultdict(list)
    for sketch, decisions in points:
        found[sketch].append(decisions)
    return found
