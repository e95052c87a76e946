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
"""TVM's evolutionary search as an explorer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel, PyCostModel
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, MeasureCandidate

from ..candidates import REPEATED_SUM, Candidate
from ..soundness import repeated_sum
from .base import Exploration, Explorer, SearchContext

_UNBOUNDED = 2**30
"""The trial limit that evolution is given: the strategy around it keeps the budget."""

_FRUITLESS_ROUNDS = 5
"""Proposals of evolution in a row, all measured before, after which its space counts as exhausted:
TVM's own ``num_empty_iters_before_early_stop`` (``evolutionary_search.cc``)."""


class EvolutionaryExplorer(Explorer):
    """Explores with TVM's ``EvolutionarySearch``.

    Evolution selects with the prior if there is one, else with the cost model that TVM trains.

    Parameters
    ----------
    **options
        Options of TVM's ``EvolutionarySearch``, such as ``population_size``.

    Raises
    ------
    ValueError
        If ``EvolutionarySearch`` does not take the options.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        try:
            self._evolution = EvolutionarySearch(**options)
        except TypeError as error:
            raise ValueError(
                f"the options of EvolutionaryExplorer are {options!r}, expected those of TVM's "
                f"EvolutionarySearch: {error}"
            ) from error

    def initialize_with_tune_context(self, context: TuneContext) -> None:
        """Prepare evolution for the task of a context."""
        self._evolution._initialize_with_tune_context(context)

    def begin(self, search: SearchContext) -> Exploration:
        """Make the exploration of a run."""
        model = search.cost_model if search.prior is None else search.prior.model
        if model is None:
            model = UniformModel(abs(search.seed))
        return EvolutionaryExploration(self._evolution, search, model)

    def clone(self) -> "EvolutionaryExplorer":
        """An explorer of the same configuration."""
        return EvolutionaryExplorer(**self.options)


class EvolutionaryExploration(Exploration):
    """Proposes what evolution proposes, less what was measured before.

    Evolution knows its own proposals since its ``pre_tuning``, but not what a database or a descent
    has measured: those lead its population and would fill its batches. So it is asked for as many
    candidates more as it may have of those. That costs nothing: it evolves the same population for
    a batch of any size.

    Parameters
    ----------
    evolution : EvolutionarySearch
        Initialised with the task's context.
    search : SearchContext
        The run.
    cost_model : CostModel
        Evolution selects with it.
    """

    def __init__(
        self, evolution: EvolutionarySearch, search: SearchContext, cost_model: CostModel
    ) -> None:
        self._evolution = evolution
        self._schedules = list(search.schedules)
        self._history = search.history
        self._dropped = search.replayer.dropped
        self._cost_model = cost_model
        self._active = False
        self._surplus: list[Candidate] = []

    def enter(self, batch_size: int) -> None:
        """Begin to explore in batches of at most ``batch_size`` candidates."""
        self.leave()
        evolution = self._evolution
        leaders = int(evolution.population_size * evolution.init_measured_ratio)
        surplus = min(len(self._history), leaders)
        evolution.pre_tuning(
            _UNBOUNDED,
            batch_size + surplus,
            self._schedules,
            self._history.view,
            self._cost_model,
        )
        self._active = True

    def leave(self) -> None:
        """Release evolution's state; a second call does nothing."""
        if self._active:
            self._evolution.post_tuning()
            self._active = False
            self._surplus.clear()

    def ask(self, count: int) -> list[Candidate]:
        """Propose candidates that were never measured, at most ``count``.

        Returns
        -------
        candidates : list[Candidate]
            Empty when evolution finds nothing new: the space is exhausted.
        """
        chosen: dict[int, Candidate] = {}
        for _ in range(_FRUITLESS_ROUNDS):
            with Profiler.timeit("Droplet/Explore"):
                proposed = self._evolution.generate_measure_candidates()
            if proposed is None:
                break
            for proposal in proposed:
                candidate = Candidate.from_schedule(proposal.sch)
                if repeated_sum(proposal.sch.mod) is not None:
                    self._dropped[REPEATED_SUM] += 1
                elif candidate not in self._history:
                    chosen.setdefault(candidate.module, candidate)
            if chosen:
                break
        batch = list(chosen.values())
        if len(batch) > count:
            # The last ones are drawn at random, the others are what evolution ranks first.
            drawn = int(self._evolution.eps_greedy * count)
            first, last = count - drawn, len(batch) - drawn
            self._surplus += batch[first:last]
            batch = batch[:first] + batch[last:]
        chosen = {candidate.module: candidate for candidate in batch}
        # Evolution never proposes these again: they are for when it has nothing else.
        while len(chosen) < count and self._surplus:
            candidate = self._surplus.pop(0)
            if candidate not in self._history:
                chosen.setdefault(candidate.module, candidate)
        return list(chosen.values())

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """Pass on the results of a batch that was asked for."""
        measured = [candidate.measure_candidate() for candidate in candidates]
        self._evolution.notify_runner_results(measured, list(results))


@derived_object
class UniformModel(PyCostModel):
    """A cost model that predicts at random, with a generator of its own.

    TVM's ``RandomModel`` seeds and restores NumPy's global generator, which is the user's.

    Parameters
    ----------
    seed : int
        The seed of the predictions.
    """

    def __init__(self, seed: int) -> None:
        """Constructor"""
        super().__init__()
        self._generator = np.random.default_rng(seed)

    def load(self, path: str) -> None:
        """Nothing to load."""

    def save(self, path: str) -> None:
        """Nothing to save."""

    def update(
        self,
        context: TuneContext,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        """Nothing to learn."""

    def predict(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Random scores from 0 to 1, of shape ``(candidates,)``."""
        return self._generator.random(len(candidates))
