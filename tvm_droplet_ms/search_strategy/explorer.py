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
"""Explore as a storm: random schedules, or TVM's evolutionary search, none measured twice."""

from collections.abc import Sequence
from itertools import cycle
from typing import Protocol

from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

from .candidates import Candidate, Replayer
from .history import History

_UNBOUNDED = 2**30
"""The trial limit that evolution is given: the strategy that composes it keeps the budget."""

_FRUITLESS_ROUNDS = 5
"""Proposals of evolution in a row, all measured before, after which its space counts as exhausted:
TVM's own ``num_empty_iters_before_early_stop`` (``evolutionary_search.cc``)."""


_KNOWN = 64
"""How many draws in a row of modules that are known count as an exhausted space."""

_REJECTED = 2560
"""How many draws in a row that the postprocessors reject count as an empty one: TVM's own
``max_fail_count`` for its population (``evolutionary_search.cc``). A GPU's limits reject most."""


class Explorer(Protocol):
    """Proposes candidates that were never measured."""

    def enter(self, batch_size: int) -> None:
        """Begin to explore in batches of at most a number of candidates."""

    def leave(self) -> None:
        """Let go of what exploring holds; a second call does nothing."""

    def ask(self, count: int) -> list[Candidate]:
        """Up to a number of candidates that were never measured; none of an exhausted space."""

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """The results of a batch that was asked for."""


class RandomExplorer:
    """Samples the design spaces in turn, as TVM's ``ReplayTrace`` does.

    Parameters
    ----------
    replayer : Replayer
        Replays traces on the task's workload.
    design_spaces : Sequence[Schedule]
        The design spaces of the task.
    history : History
        What was measured.
    """

    def __init__(
        self, replayer: Replayer, design_spaces: Sequence[Schedule], history: History
    ) -> None:
        self._replayer = replayer
        self._turns = cycle([Trace(space.trace.insts, {}) for space in design_spaces])
        self._history = history

    def enter(self, batch_size: int) -> None:
        """Nothing is held."""

    def leave(self) -> None:
        """Nothing is held."""

    def ask(self, count: int) -> list[Candidate]:
        """Candidates that were never measured.

        Parameters
        ----------
        count : int
            The most that may be returned.

        Returns
        -------
        candidates : list[Candidate]
            Empty when nothing new was drawn for long: the space is exhausted, or rejects all.
        """
        chosen: dict[int, Candidate] = {}
        known = rejected = 0
        while len(chosen) < count and known < _KNOWN and rejected < _REJECTED:
            candidate = self._replayer.replay(next(self._turns))
            if candidate is None:
                rejected += 1
            elif candidate in self._history or candidate.module in chosen:
                known += 1
            else:
                chosen[candidate.module] = candidate
                known = rejected = 0
        return list(chosen.values())

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """Samples do not depend on results."""


class EvolutionaryExplorer:
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
