# SPDX-License-Identifier: Apache-2.0
"""Descent on a surrogate: measures the points of largest expected improvement."""

import math
import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from tvm.s_tir.meta_schedule.profiler import Profiler

from ..candidates import TaskHistory
from ..drafting import LatentDraft, Mask, Score, possible_points
from ..explorers.base import SearchContext
from ..published.candidates import Candidate, mean
from ..published.decisions import Prober, SpacePoint
from ..published.lifecycle import Task
from ..published.search import Batch, Budget
from ..stopping import StopRule
from ..surrogate.gaussian_process import by_expected_improvement
from .belief import Belief
from .points import LocalMoves, TriedPoints

MIN_BATCH = 4
"""The smallest batch of a surrogate descent. For a GPU, a batch also has at least one candidate per
thread of the context: a candidate takes seconds to compile, in parallel with the others, and little
time to run."""

BATCH_SHARE = 8
"""A batch of a surrogate descent has at most one candidate per this many measurements, so that the
surrogate learns from each batch before it chooses the next."""

MAX_BATCH = 16
"""The largest batch of a surrogate descent."""


def least_batch(task: Task) -> int:
    """The smallest batch of a task's descent."""
    return max(MIN_BATCH, task.num_threads if "gpu" in task.target.keys else 0)


def growing_batch(history: TaskHistory, least: int, budget: Budget) -> int:
    """The batch size of a surrogate descent, which grows with the number of measurements."""
    return min(max(least, len(history) // BATCH_SHARE), MAX_BATCH, budget.room)


RANDOM_POINTS = 100
"""Number of random points of the whole space that are considered for a batch."""

MOST_DRAWS = 8
"""The maximum number of draws of ``RANDOM_POINTS`` points if a mask refuses some of them."""

DRAFTED_POINTS = 400
"""Number of drafted points that are considered for a batch without a prior."""

DRAFTED, ASKED_STEPS, ASKED_RANDOM = 8, 2, 4
"""Numbers of points per batch that the prior is asked about: the points that a draft ranks first,
steps from the best point, and random points. Each point costs a replay. Points of earlier batches
are considered again."""

ASK_UNTIL = 32
"""Number of measurements after which the prior is no longer asked, because asking takes time. Its
predictions remain the mean."""

PARENTS = 16
"""Number of good points that drafted points are made from."""

MAX_FIT_POINTS = 256
"""The maximum number of measurements for a fit, which is cubic in their number."""

REPLAYS_PER_CANDIDATE = 16
"""Replays per wanted candidate after which a smaller batch is accepted."""

_Order = Generator[int, bool, None]
"""Yields the index of a point, and is sent whether the point was taken."""


class SurrogateDescent:
    """Searches locally around the best point on a surrogate of the measurements.

    For each batch:

    1. Fit a Gaussian process to the relative throughput of all measurements. Its mean is the
       prediction of a prior, or of trees fitted to the measurements if there is no prior.
    2. Collect the adjacent steps of every decision from the point that is expected to be the best,
       random points of the whole space, and the best of thousands of points that were drawn,
       changed and recombined.
    3. Take the points with the largest expected improvement, each as if the earlier ones had come
       out as predicted.

    ``batch_size``: the maximum number of candidates of the next batch.
    """

    def __init__(
        self,
        search: SearchContext,
        prober: Prober,
        batch_size: Callable[[], int],
        rule: StopRule,
    ) -> None:
        self.batch_size = batch_size
        self._replayer = search.replayer
        self._history = search.history
        self._spaces = search.spaces
        self._generator = search.generator
        self._prior = search.prior
        self._rule = rule
        self._moves = LocalMoves(search.spaces, prober, search.generator)
        self._draft = LatentDraft(search.spaces, search.generator)
        self._mask = search.draft
        self._tried = TriedPoints(search.history, search.spaces)
        self._asked: set[SpacePoint] = set()
        # A database sorts its records by time: unshuffled, the latest would be the slowest.
        self._loaded = list(self._tried.seconds())
        random.Random(search.seed).shuffle(self._loaded)

    def descend(self) -> Generator[Batch, None, bool]:
        """Propose batches until nothing new is found; see ``Descent``."""
        while True:
            best = self._history.best()
            if best is not None and self._rule.is_over(len(self._history), mean(best.secs)):
                return True
            batch = self.propose(self.batch_size())
            if not batch:
                return False
            yield batch

    def propose(self, count: int) -> Batch:
        """Propose at most `count` points with the largest expected improvement.

        The batch is empty if every considered point was tried, or no measurement has succeeded.
        """
        # Matrices this small are slower on several threads, and far slower on a busy machine.
        with Profiler.timeit("Droplet/Propose"), threadpool_limits(1, user_api="blas"):
            secs = self._tried.seconds()
            if all(map(math.isinf, secs.values())):
                return []
            with Profiler.timeit("Droplet/Model"):
                belief = self._belief(secs)
            is_asked = self._prior is not None and len(secs) < ASK_UNTIL
            pool = self._asked_points(belief) if is_asked else self._considered(belief)
            if not pool:
                return []
            with Profiler.timeit("Droplet/Model"):
                if is_asked:
                    belief = self._belief(secs)
                order = by_expected_improvement(belief.predict(pool), belief.best_value)
            return self._take(pool, order, count)

    def _belief(self, secs: Mapping[SpacePoint, float]) -> Belief:
        if self._prior is None:
            return Belief(self._spaces, self._values(secs))
        means = {point: -score for point, score in self._prior.means.items()}
        return Belief(self._spaces, self._values(secs), means)

    def _considered(self, belief: Belief) -> list[SpacePoint]:
        """Untried points to choose from."""
        steps = self._steps(belief)
        random_points = self._random_points()
        seen = [*self._tried.seconds(), *steps, *random_points]
        parents = belief.best_of(PARENTS)
        drafted = self._draft.best(seen, parents, self._improvements(belief), DRAFTED_POINTS)
        return self._untried(steps | dict.fromkeys(drafted) | random_points)

    def _untried(self, points: Iterable[SpacePoint]) -> list[SpacePoint]:
        """The points that were not tried, and are not known to be refused."""
        new = [point for point in points if not self._tried.is_tried(point)]
        return possible_points(self._mask, new)

    def _random_points(self) -> dict[SpacePoint, None]:
        """Random points of the whole space; more are drawn if a mask refuses most of them."""
        found: dict[SpacePoint, None] = {}
        for _ in range(MOST_DRAWS if isinstance(self._mask, Mask) else 1):
            drawn = self._moves.random_points(RANDOM_POINTS)
            found |= dict.fromkeys(possible_points(self._mask, drawn))
            if len(found) >= RANDOM_POINTS:
                break
        return found

    def _improvements(self, belief: Belief) -> Score:
        """The expected improvements of a belief; negative infinity for refused points."""
        mask = self._mask
        if not isinstance(mask, Mask):
            return belief.improvements

        def score(sketch: int, points: np.ndarray) -> np.ndarray:
            improvements = belief.improvements(sketch, points)
            return np.where(mask.is_possible(sketch, points), improvements, -np.inf)

        return score

    def _asked_points(self, belief: Belief) -> list[SpacePoint]:
        """Ask the prior about some new points; return all untried points with a prediction."""
        assert self._prior is not None
        means = self._prior.means
        steps = self._steps(belief)
        promising = sorted(means, key=lambda point: -means[point])[:PARENTS]
        parents = [*belief.best_of(PARENTS), *promising]
        score = self._improvements(belief)
        drafted = self._draft.best([*means, *steps], parents, score, 2 * DRAFTED)
        drafted = [point for point in drafted if point not in means][:DRAFTED]
        new = [point for point in steps if point not in means]
        new = self._generator.sample(new, min(ASKED_STEPS, len(new)))
        self._ask([*drafted, *new, *self._moves.random_points(ASKED_RANDOM)])
        return [point for point in means if not self._tried.is_tried(point)]

    def _steps(self, belief: Belief) -> dict[SpacePoint, None]:
        """Steps from the best point that is not rejected; a prior may rank a rejected one first."""
        (best,) = belief.best_of(1, without=set(self._tried.rejected()))
        return self._moves.adjacent(best)

    def _ask(self, points: Sequence[SpacePoint]) -> None:
        """Ask the prior about the points that it was not asked about before."""
        assert self._prior is not None
        known = self._asked | self._prior.means.keys()
        new = [point for point in dict.fromkeys(points) if point not in known]
        self._asked.update(new)
        new = possible_points(self._mask, new)
        asked = []
        candidates = self._replayer.replay_all(map(self._spaces.trace, new))
        for point, candidate in zip(new, candidates, strict=True):
            self._tried.note_new(point, candidate)
            if candidate is not None:
                realized = self._spaces.realized(point, candidate.trace)
                self._tried.note_new(realized, candidate)
                asked.append((realized, candidate))
        self._prior.ask(asked)

    def _values(self, secs: Mapping[SpacePoint, float]) -> dict[SpacePoint, float]:
        """The modeled values: the throughput relative to the best, negated.

        Failures and rejected points have the value 0. Differences among slow points matter little.
        """
        best = min(secs.values())
        values = {point: -best / sec for point, sec in _fit_points(secs, self._loaded).items()}
        rejected = self._tried.rejected()
        values.update(dict.fromkeys(rejected[-len(values) :], 0.0))
        return values

    def _take(self, pool: Sequence[SpacePoint], order: _Order, count: int) -> Batch:
        """Take unmeasured candidates from the pool, and report each to the order generator."""
        batch: Batch = []
        modules: set[int] = set()
        replays = 0
        found = next(order, None)
        while found is not None and len(batch) < count:
            if batch and replays >= REPLAYS_PER_CANDIDATE * count:
                break
            candidate = self._realize(pool[found])
            replays += 1
            is_new = candidate is not None and candidate.module not in modules
            if candidate is not None and is_new:
                modules.add(candidate.module)
                batch.append(candidate)
            found = _send(order, is_new)
        return batch

    def _realize(self, point: SpacePoint) -> Candidate | None:
        """The candidate of a point; None if it is rejected, or was measured."""
        candidate = self._replayer.replay(self._spaces.trace(point))
        self._tried.note(point, candidate)
        return None if candidate is None or candidate in self._history else candidate


def _fit_points(
    secs: Mapping[SpacePoint, float], loaded: Sequence[SpacePoint] = ()
) -> Mapping[SpacePoint, float]:
    """All measurements; beyond ``MAX_FIT_POINTS``, the best and the latest, half of each.

    ``loaded``: the points of earlier runs, which count as older than all others, in this order.
    """
    if len(secs) <= MAX_FIT_POINTS:
        return secs
    half = MAX_FIT_POINTS // 2
    best = sorted(secs, key=secs.__getitem__)[:half]
    kept = {*best, *list(dict.fromkeys([*loaded, *secs]))[-half:]}
    return {point: sec for point, sec in secs.items() if point in kept}


def _send(order: _Order, taken: bool) -> int | None:
    try:
        return order.send(taken)
    except StopIteration:
        return None
