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
"""Explore as a storm: TVM's evolutionary search, kept from measuring anything twice."""

from collections.abc import Sequence

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

from .candidates import Candidate
from .history import History

_UNBOUNDED = 2**30
"""The trial limit that evolution is given: the strategy that composes it keeps the budget."""

_FRUITLESS_ROUNDS = 5
"""Proposals of evolution in a row, all measured before, after which its space counts as exhausted:
TVM's own ``num_empty_iters_before_early_stop`` (``evolutionary_search.cc``)."""


class Explorer:
    """Proposes what evolution proposes, less what was measured before.

    Evolution knows what it has proposed since its ``pre_tuning``, and nothing of what a database
    or a descent has measured; those lead its population and would fill its batches. So it is asked
    for as many candidates more as it may have of those, which costs nothing: it evolves the same
    population for a batch of any size.

    Parameters
    ----------
    evolution : EvolutionarySearch
        Initialised with the task's context.
    design_spaces : Sequence[Schedule]
        The design spaces of the task.
    history : History
        What was measured, and the database view that evolution starts from.
    cost_model : CostModel
        The cost model that evolution selects with.
    """

    def __init__(
        self,
        evolution: EvolutionarySearch,
        design_spaces: Sequence[Schedule],
        history: History,
        cost_model: CostModel,
    ) -> None:
        self._evolution = evolution
        self._design_spaces = list(design_spaces)
        self._history = history
        self._cost_model = cost_model
        self._active = False
        self._surplus: list[Candidate] = []

    def enter(self, batch_size: int) -> None:
        """Begin to explore in batches of at most a number of candidates."""
        self.leave()
        evolution = self._evolution
        leaders = int(evolution.population_size * evolution.init_measured_ratio)
        surplus = min(len(self._history), leaders)
        self._evolution.pre_tuning(
            _UNBOUNDED,
            batch_size + surplus,
            self._design_spaces,
            self._history.view,
            self._cost_model,
        )
        self._active = True

    def leave(self) -> None:
        """Let go of evolution's state; a second call does nothing."""
        if self._active:
            self._evolution.post_tuning()
            self._active = False

    def ask(self, count: int) -> list[Candidate]:
        """Candidates that were never measured.

        Parameters
        ----------
        count : int
            The most that may be returned.

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
                candidate = Candidate.of(proposal.sch)
                if candidate in self._history or candidate.module in chosen:
                    continue
                if len(chosen) < count:
                    chosen[candidate.module] = candidate
                else:
                    self._surplus.append(candidate)
            if chosen:
                break
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
