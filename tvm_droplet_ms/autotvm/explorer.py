# SPDX-License-Identifier: Apache-2.0
"""AutoTVM's explorer: simulated annealing on the predictions of a cost model."""

from collections.abc import Hashable, Sequence
from random import Random

import numpy as np

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult

from ..search_strategy.explorers.base import Exploration, Explorer, SearchContext
from ..search_strategy.explorers.random_sampling import RandomExploration
from ..search_strategy.logger import logger
from ..search_strategy.prior import CostModelPrior
from ..search_strategy.published.candidates import Candidate
from ..search_strategy.published.lifecycle import check_at_least
from .annealing import TopStates, anneal, submodular_pick

LEAST_CHOICE = 2
"""From at least so many times its size a batch is chosen: of as many as it needs, none is left to
prefer for its diversity."""


class AnnealingExplorer(Explorer):
    """Explores as AutoTVM does: an ``explorer`` of ``DropletStrategy``.

    Algorithm 1 of "Learning to Optimize Tensor Programs" (Chen et al., 2018). For each batch,
    simulated annealing finds the schedules that the cost model scores highest; the batch is a
    diverse choice of them, and a share of random schedules. The chains go on from batch to batch.
    The cost model is the prior; without one, it is the model that TVM trains, and batches are
    random while that predicts at random.

    The defaults are AutoTVM's. A move is a replay and a prediction here, some 5 ms, so that a batch
    may take minutes; ``steps=4`` takes seconds.

    Parameters
    ----------
    chains : int
        The number of chains. At least 1.
    steps : int
        The moves of each chain for a batch, at most. At least 1.
    early_stop : int
        The moves without a better schedule after which a batch is chosen. At least 1.
    plan_size : int
        The best schedules visited, from which a batch is chosen; twice the batch if that is more.
        At least 1.
    diversity : float
        The worth of one more value of a decision in a batch, as a share of the best throughput. At
        least 0.
    epsilon : float
        The share of a batch that is random, from 0 to 1.

    Raises
    ------
    ValueError
        Names the argument that is out of its range.
    """

    def __init__(
        self,
        *,
        chains: int = 128,
        steps: int = 500,
        early_stop: int = 50,
        plan_size: int = 64,
        diversity: float = 0.02,
        epsilon: float = 0.05,
    ) -> None:
        check_at_least("chains", chains, 1)
        check_at_least("steps", steps, 1)
        check_at_least("early_stop", early_stop, 1)
        check_at_least("plan_size", plan_size, 1)
        if not diversity >= 0.0:
            raise ValueError(f"diversity is {diversity!r}, expected at least 0")
        if not 0.0 <= epsilon <= 1.0:
            raise ValueError(f"epsilon is {epsilon!r}, expected a share from 0 to 1")
        self.chains = chains
        self.steps = steps
        self.early_stop = early_stop
        self.plan_size = plan_size
        self.diversity = diversity
        self.epsilon = epsilon

    def begin(self, search: SearchContext) -> Exploration:
        """Make the exploration of a run."""
        return AnnealingExploration(self, search)

    def clone(self) -> "AnnealingExplorer":
        """An explorer of the same configuration."""
        return AnnealingExplorer(**vars(self))


class AnnealingExploration(Exploration):
    """The annealing of one run. ``options``: the configuration."""

    def __init__(self, options: AnnealingExplorer, search: SearchContext) -> None:
        self._options = options
        self._search = search
        self._sampling = RandomExploration(search.replayer, search.schedules, search.history)
        self._model = search.prior
        if search.prior is None and search.cost_model is not None:
            mod, target = search.replayer.mod, search.history.target
            self._model = CostModelPrior(search.cost_model, mod, target)
        self._chains: list[Candidate] = []
        self._warned = False

    def enter(self, batch_size: int) -> None:
        """The chains go on where they were."""

    def leave(self) -> None:
        """Drop the chains."""
        self._chains.clear()

    def ask(self, count: int) -> list[Candidate]:
        """Propose candidates that were never measured, at most ``count``."""
        with Profiler.timeit("Droplet/Explore"):
            if not self._chains:
                self._chains = self._sampling.ask(self._options.chains)
            size = max(self._options.plan_size, LEAST_CHOICE * count)
            planned = self._plan(size) if self._is_informed() else []
            at_random = round(self._options.epsilon * count)
            batch = self._choose(planned, count - at_random)
            chosen = {candidate.module: candidate for candidate in batch}
            # The random share, and whatever annealing has found too little of.
            while len(chosen) < count:
                sampled = self._sampling.ask(count - len(chosen))
                new = {one.module: one for one in sampled if one.module not in chosen}
                if not new:
                    break
                chosen.update(new)
            return list(chosen.values())

    def _is_informed(self) -> bool:
        """True if the cost model predicts the same twice; TVM's do not until they are trained."""
        if self._model is None or not self._chains:
            return False
        first, second = (self._model.predict(self._chains) for _ in range(2))
        informed = bool(np.array_equal(first, second))
        if not informed and not self._warned:
            self._warned = True
            logger.warning(
                "the cost model predicts at random until it is trained: batches are random "
                "meanwhile; pass a prior to anneal from the first batch on"
            )
        return informed

    def _plan(self, size: int) -> list[tuple[float, Candidate]]:
        """The best schedules that annealing visits, with their scores."""
        top = TopStates[Candidate](
            size,
            key=lambda candidate: candidate.module,
            is_excluded=lambda candidate: candidate in self._search.history,
        )
        self._chains = anneal(
            self._chains,
            self._score(self._chains),
            self._redraw_one,
            self._score,
            steps=self._options.steps,
            early_stop=self._options.early_stop,
            top=top,
            generator=self._search.generator,
        )
        return top.best()

    def _score(self, candidates: Sequence[Candidate]) -> list[float]:
        assert self._model is not None
        return [float(score) for score in self._model.predict(candidates)]

    def _redraw_one(self, candidate: Candidate) -> Candidate | None:
        """A candidate with one decision sampled anew; None if it is rejected."""
        trace = candidate.trace.simplified(remove_postproc=True)
        decisions = dict(trace.decisions.items())
        if not decisions:
            return None
        generator: Random = self._search.generator
        del decisions[generator.choice([inst for inst in trace.insts if inst in decisions])]
        return self._search.replayer.replay(Trace(trace.insts, decisions))

    def _choose(self, planned: Sequence[tuple[float, Candidate]], count: int) -> list[Candidate]:
        scores = np.array([score for score, _ in planned])
        covers = [self._components(candidate) for _, candidate in planned]
        picked = submodular_pick(scores, covers, count, self._options.diversity)
        return [planned[index][1] for index in picked]

    def _components(self, candidate: Candidate) -> frozenset[Hashable]:
        """The values of a candidate's decisions, the sketch among them."""
        point = self._search.spaces.find(candidate.trace)
        if point is None:
            return frozenset()
        sketch, decisions = point
        return frozenset(enumerate((sketch, *decisions)))

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """The cost model learns of results by itself."""
