# SPDX-License-Identifier: Apache-2.0
"""Sample the design spaces of one task, and rank the samples with a cost model."""

import math
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tvm.ir import IRModule
from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.target import Target

from ...design_space.native_vectors import with_native_vectors
from ...design_space.screening.executed_work import WorkLimit
from ...design_space.sound_space import sound_space
from ...search_strategy.candidates import ScreenedReplayer, TaskHistory
from ...search_strategy.design_spaces import EncodedSpaces
from ...search_strategy.explorers.random_sampling import RandomExploration
from ...search_strategy.known_schedules import KnownLike, find_schedules, nearest_points
from ...search_strategy.logger import logger
from ...search_strategy.prior import CostModelPrior
from ...search_strategy.published.candidates import Candidate
from ...search_strategy.published.decisions import Sketch, SpacePoint
from ...session.errors import last_line
from .picks import FirstPick
from .plain_schedule import plain_schedule

KEPT = 8
"""Number of best predicted points of a task that are kept as starting points of the search."""

FINALS = 24
"""Number of best predicted schedules from which the schedules to measure are chosen."""

KNOWN = 16
"""Number of nearest known decisions of other models' tasks to rank. If there are that many, at most
as many random schedules are sampled: with 64, the cost model chose a random one for only one kernel
in ten, and sampling takes most of the time."""


LEAST_DIFFERENCE = 0.25
"""The minimum share of differing decision values between two schedules of alike design spaces. The
best predicted ones are often near-twins: measuring three of them tells no more than one."""

DRAWN_AT_ONCE = 16
"""Number of random schedules to draw between two looks at the clock."""

_TILED = "meta_schedule.tiling_structure"
"""The annotation of TVM's rule for tiles, ``MultiLevelTiling``."""

_NUMBERED = r"(?<=[\[ ])\d+(?=[,\]])"
"""The numbers by which a sketch's key names blocks and loops; constants are in quotes."""

SPACE = "post-order-apply"
"""The design space; the tuning uses the same."""


class NoSchedule(RuntimeError):
    """Raised if a task has no valid schedule; the message gives the reason."""


@dataclass(frozen=True)
class PickRequest:
    """A task to sample, with ``count`` random schedules and at most as many known ones.

    ``secs``: the seconds of one core after which no more random schedules are drawn, except the
    first ``DRAWN_AT_ONCE``.
    """

    mod: IRModule
    target: Target
    count: int
    seed: int
    known: KnownLike = "auto"
    secs: float = math.inf


def sample_pick(request: PickRequest, model: CostModel | None) -> FirstPick:
    """Pick the best predicted schedule among sampled ones and the nearest known ones.

    Without a model, this picks the nearest known schedule, or else a random one. If none is valid,
    it picks the plain schedule. Raises ``NoSchedule`` or TVM's error if there is no plain schedule
    either.
    """
    try:
        ranked = _rank(request, model)
    # TVM raises many error types if it cannot make a design space.
    except Exception as error:
        plain = plain_schedule(request.mod)
        if plain is None:
            raise
        logger.info("no sampled schedule, so that a plain one is taken: %s", last_line(error))
        return FirstPick(request.mod, plain.trace, (), ())
    best = list(ranked.known_points(KEPT))
    return FirstPick(
        request.mod,
        ranked.candidates[0].trace,
        tuple(point for point, _ in best),
        tuple(score for _, score in best) if ranked.predicted else (),
    )


def sample_finalists(request: PickRequest, model: CostModel | None, count: int) -> list[Trace]:
    """Return the best predicted schedules except near-twins, best first; then the plain one."""
    traces: list[Trace] = []
    try:
        ranked = _rank(request, model)
        places = choose_different(ranked.alike_points(FINALS), count)
        traces += [ranked.candidates[place].trace for place in places]
    except Exception as error:
        logger.info("no sampled schedule to measure: %s", last_line(error))
    plain = plain_schedule(request.mod)
    return traces if plain is None else [*traces, plain.trace]


def difference(one: SpacePoint, other: SpacePoint) -> float:
    """Return the share of values in which two points differ; 1 for different design spaces."""
    if one[0] != other[0] or len(one[1]) != len(other[1]):
        return 1.0
    if not one[1]:
        return 0.0
    return sum(a != b for a, b in zip(one[1], other[1], strict=True)) / len(one[1])


def choose_different(points: Sequence[SpacePoint | None], count: int) -> list[int]:
    """Return the indices of the best points except near-twins; the first is always included.

    ``points``: the best first; None differs from all other points. If too few points differ, the
    best near-twins fill up the result.
    """

    def differ(one: SpacePoint | None, other: SpacePoint | None) -> bool:
        return one is None or other is None or difference(one, other) >= LEAST_DIFFERENCE

    chosen: list[int] = []
    for place, point in enumerate(points):
        if len(chosen) < count and all(differ(point, points[other]) for other in chosen):
            chosen.append(place)
    rest = [place for place in range(len(points)) if place not in chosen]
    return sorted(chosen + rest[: count - len(chosen)])


@dataclass(frozen=True)
class _Ranked:
    """Schedules of a task, the best predicted first."""

    candidates: list[Candidate]
    predicted: list[float]
    spaces: EncodedSpaces

    def points(self, count: int) -> list[tuple[SpacePoint | None, float]]:
        """Return the points of the first candidates and their predictions."""
        found = [self.spaces.find(candidate.trace) for candidate in self.candidates[:count]]
        return list(zip(found, self.predicted or [0.0] * len(self.candidates)))

    def alike_points(self, count: int) -> list[SpacePoint | None]:
        """Return the points of the first candidates; alike design spaces have the same number.

        Alike are spaces that differ only in where a consumer is computed.
        """
        first: dict[tuple[str, ...], int] = {}
        number = [
            first.setdefault(_form(sketch), place)
            for place, sketch in enumerate(self.spaces.sketches)
        ]
        return [
            None if point is None else (number[point[0]], point[1])
            for point, _ in self.points(count)
        ]

    def known_points(self, count: int) -> Iterator[tuple[SpacePoint, float]]:
        """Yield the points that belong to the design spaces, with their predictions."""
        for point, predicted in self.points(count):
            if point is not None:
                yield point, predicted


def _form(sketch: Sketch) -> tuple[str, ...]:
    """Return what sets a design space apart: of TVM's tiles not where consumers are computed."""
    if not any(_TILED in each for each in sketch.key):
        return sketch.key
    kept = [each for each in sketch.key if each.startswith(("Sample", "Split", "Annotate"))]
    return tuple(re.sub(_NUMBERED, "", each) for each in kept)


def _rank(request: PickRequest, model: CostModel | None) -> _Ranked:
    """Sample schedules and sort them by predicted score."""
    context = TuneContext(
        request.mod,
        target=request.target,
        space_generator=sound_space(SPACE, request.mod, request.target),
        rand_state=request.seed + 1,
        num_threads=1,
    )
    schedules = context.generate_design_space()
    limit = WorkLimit(request.mod, (schedule.mod for schedule in schedules))
    postprocs = with_native_vectors(context.space_generator.postprocs or [], request.target)
    checks = [*postprocs, limit]
    replayer = ScreenedReplayer(request.mod, checks, random.Random(request.seed))
    history = TaskHistory(request.mod, request.target)
    spaces = EncodedSpaces([schedule.trace for schedule in schedules])
    known = find_schedules(request.known, request.target)
    near = nearest_points(known, spaces, 1 if model is None else min(KNOWN, max(1, request.count)))
    count = request.count if len(near) < KNOWN else min(request.count, KNOWN)
    sampling = RandomExploration(replayer, schedules, history)
    # With time for only one, rank the nearest known schedule and the plain one.
    drawn = 0 if model is None or (near and count == 1) else count
    candidates = _draw(sampling, drawn, request.secs)
    replayed = replayer.replay_all(map(spaces.trace, near))
    candidates.extend(candidate for candidate in replayed if candidate is not None)
    candidates = candidates or sampling.ask(count)
    # No TVM rule vectorizes a reduction over outer axes, such as a mean in NHWC.
    plain = None if model is None else plain_schedule(request.mod)
    if plain is not None and limit.apply(plain):
        candidates.append(Candidate.from_schedule(plain))
    candidates = list({candidate.module: candidate for candidate in candidates}.values())
    if not candidates:
        raise NoSchedule(_why_empty(replayer))
    predicted: list[float] = []
    # A single schedule is picked regardless of its prediction.
    if model is not None and len(candidates) > 1:
        scores = _predict(request, model, candidates)
        order = np.argsort(-scores, kind="stable")
        candidates = [candidates[index] for index in order]
        predicted = [float(scores[index]) for index in order]
    return _Ranked(candidates, predicted, spaces)


def _draw(sampling: RandomExploration, count: int, secs: float) -> list[Candidate]:
    """Draw distinct random schedules, at most ``count``, until the time is over."""
    if math.isinf(secs):
        return sampling.ask(count) if count else []
    began = time.process_time()
    found: dict[int, Candidate] = {}
    while len(found) < count and (not found or time.process_time() - began < secs):
        before = len(found)
        drawn = sampling.ask(min(DRAWN_AT_ONCE, count - before))
        found.update((candidate.module, candidate) for candidate in drawn)
        if len(found) == before:
            break
    return list(found.values())


def _predict(request: PickRequest, model: CostModel, candidates: Sequence[Candidate]) -> np.ndarray:
    scores = CostModelPrior(model, request.mod, request.target).predict(candidates)
    return np.where(np.isfinite(scores), scores, 0.0)


def _why_empty(replayer: ScreenedReplayer) -> str:
    """Return the reasons for dropped samples."""
    reasons = ", ".join(f"{count} by {reason}" for reason, count in replayer.dropped.items())
    return f"all samples were dropped: {reasons}" if reasons else "its design space is empty"
