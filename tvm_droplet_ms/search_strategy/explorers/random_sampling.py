# SPDX-License-Identifier: Apache-2.0
"""Random schedules, sampled as TVM does; with a prior or a draft, the best of many."""

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np

from tvm.s_tir import Schedule, Trace

from ..candidates import ScreenedReplayer, TaskHistory
from ..drafting import LatentDraft, TaskDraft
from ..prior import CostModelPrior
from ..published.candidates import Candidate
from ..published.decisions import SpacePoint
from .base import Explorer, ExplorerRun, SearchContext

_KNOWN = 64
"""Consecutive draws of known modules after which the space counts as exhausted."""

_REJECTED = 2560
"""Consecutive draws rejected by postprocessors after which the space counts as empty: TVM's own
``max_fail_count`` for its population (``evolutionary_search.cc``). A GPU's limits reject most."""


class RandomExplorer(Explorer):
    """Samples random schedules; with a prior, measures the best predicted ones and some others.

    Parameters
    ----------
    pool_size : int
        With a prior: the number of random schedules to choose a batch from. Each costs a replay and
        a prediction. At least 1.
    epsilon : float
        With a prior: the share of a batch that is chosen at random, from 0 to 1. Schedules with low
        predictions show how far the prior can be trusted.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names the argument.
    """

    def __init__(self, *, pool_size: int = 256, epsilon: float = 0.25) -> None:
        if not isinstance(pool_size, int) or pool_size < 1:
            raise ValueError(f"pool_size is {pool_size!r}, expected an integer of at least 1")
        if not 0.0 <= epsilon <= 1.0:
            raise ValueError(f"epsilon is {epsilon!r}, expected a share from 0 to 1")
        self.pool_size = pool_size
        self.epsilon = float(epsilon)

    def begin(self, search: SearchContext) -> ExplorerRun:
        """Make the exploration of a run."""
        sampling: ExplorerRun = RandomExploration(search.replayer, search.schedules, search.history)
        if search.draft is not None:
            sampling = DraftedSampling(sampling, search, search.draft)
        if search.prior is None:
            return sampling
        return PriorGuidedExploration(sampling, search, self.pool_size, self.epsilon)

    def clone(self) -> "RandomExplorer":
        """An explorer of the same configuration."""
        return RandomExplorer(pool_size=self.pool_size, epsilon=self.epsilon)


class RandomExploration(ExplorerRun):
    """Samples the design spaces in turn, as TVM's ``ReplayTrace`` does."""

    def __init__(
        self, replayer: ScreenedReplayer, schedules: Sequence[Schedule], history: TaskHistory
    ) -> None:
        self._replayer = replayer
        self._turns = cycle([Trace(schedule.trace.insts, {}) for schedule in schedules])
        self._history = history

    def ask(self, count: int) -> list[Candidate]:
        """Sample candidates that were never measured, at most ``count``.

        Returns fewer after many draws without a new candidate: the space is exhausted or rejects
        everything.
        """
        chosen: dict[int, Candidate] = {}
        known = rejected = 0
        while len(chosen) < count and known < _KNOWN and rejected < _REJECTED:
            traces = islice(self._turns, count - len(chosen))
            for candidate in self._replayer.replay_all(traces):
                if candidate is None:
                    rejected += 1
                elif candidate in self._history or candidate.module in chosen:
                    known += 1
                else:
                    chosen[candidate.module] = candidate
                    known = rejected = 0
        return list(chosen.values())


class PriorGuidedExploration(ExplorerRun):
    """Measures the best predicted of many random schedules, and some random ones."""

    def __init__(
        self, sampling: ExplorerRun, search: SearchContext, pool_size: int, epsilon: float
    ) -> None:
        self._sampling = sampling
        assert search.prior is not None
        self._prior: CostModelPrior = search.prior
        self._spaces = search.spaces
        self._history = search.history
        self._pool_size = pool_size
        self._epsilon = epsilon
        self._pool: dict[int, tuple[SpacePoint, Candidate]] = {}

    def enter(self, batch_size: int) -> None:
        """Sample the schedules to choose from."""
        self._pool.clear()
        self._fill()

    def _fill(self) -> None:
        # Candidates that are not chosen for their prediction are chosen in this order.
        for candidate in self._sampling.ask(self._pool_size):
            point = self._spaces.find(candidate.trace)
            if point is not None:
                self._pool.setdefault(candidate.module, (point, candidate))
        self._prior.ask(list(self._pool.values()))

    def leave(self) -> None:
        """Drop the sampled schedules; their predictions are kept."""
        self._pool.clear()

    def ask(self, count: int) -> list[Candidate]:
        """Choose candidates that were never measured, at most ``count``."""
        # A candidate of the pool may have been measured meanwhile, for example as a seed.
        for module in [module for module in self._pool if self._pool[module][1] in self._history]:
            del self._pool[module]
        if len(self._pool) < count:
            self._fill()
        pool = list(self._pool.values())
        predicted = np.array([self._prior.means[point] for point, _ in pool])
        batch = [pool[index][1] for index in best_and_others(predicted, count, self._epsilon)]
        for candidate in batch:
            del self._pool[candidate.module]
        return batch


def best_and_others(scores: np.ndarray, count: int, epsilon: float) -> list[int]:
    """The indices of the highest scores, and of a share `epsilon` of others in their order."""
    others = round(epsilon * count)
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    best = order[: count - others]
    rest = sorted(order[count - others :])
    return best + rest[:others]


LEAST_RANDOM = 16
"""The fewest random schedules, if any are drawn: they show which values decisions have."""

SPARE = 8
"""Number of extra drafted schedules, to replace schedules that do not replay."""


class DraftedSampling(ExplorerRun):
    """Samples schedules that a draft expects to be fast, after some random ones."""

    def __init__(self, sampling: ExplorerRun, search: SearchContext, draft: TaskDraft) -> None:
        self._sampling = sampling
        self._search = search
        self._draft = draft

    def ask(self, count: int) -> list[Candidate]:
        """Sample candidates that were never measured, at most ``count``, the random ones first."""
        share = round(self._draft.random_share * count)
        drawn = self._sampling.ask(max(LEAST_RANDOM, share)) if share else []
        found = {candidate.module: candidate for candidate in drawn[:share]}
        for candidate in [*self._drafted(drawn, count - len(found)), *drawn[share:]]:
            if len(found) < count:
                found.setdefault(candidate.module, candidate)
        for candidate in self._sampling.ask(count - len(found)):
            found.setdefault(candidate.module, candidate)
        return list(found.values())

    def _drafted(self, drawn: Sequence[Candidate], count: int) -> list[Candidate]:
        """The schedules with the highest scores of the draft.

        If the draft knows only a share of the points, at most that share of `count` is returned,
        because the known points are not better than the others.
        """
        search = self._search
        known: list[np.ndarray] = []

        def score(sketch: int, points: np.ndarray) -> np.ndarray:
            scores = self._draft.scores(sketch, points)
            told = scores[~np.isnan(scores)]
            if len(told) and np.isfinite(told[0]) and np.all(told == told[0]):
                # The draft neither distinguishes points nor finds invalid ones.
                scores = np.full(len(points), np.nan)
            known.append(~np.isnan(scores))
            return scores

        seen = [search.spaces.find(candidate.trace) for candidate in drawn]
        points = [point for point in seen if point is not None]
        best = LatentDraft(search.spaces, search.generator).best(points, [], score, count + SPARE)
        wanted = min(len(best), round(count * float(np.concatenate(known).mean())))
        found: list[Candidate] = []
        # The next best points replace points that do not replay or were measured.
        while best and len(found) < wanted:
            missing = wanted - len(found)
            replayed = search.replayer.replay_all(map(search.spaces.trace, best[:missing]))
            best = best[missing:]
            found += [one for one in replayed if one is not None and one not in search.history]
        return found
