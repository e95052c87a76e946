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
"""Generic search algorithms as MetaSchedule search strategies."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    MeasureCandidate,
    PySearchStrategy,
    SearchStrategy,
)

from ...search_strategy.candidates import Candidate, Replayer
from ...search_strategy.history import mean, valid_secs
from ...search_strategy.log import logger
from ...search_strategy.search import Budget
from .ask_tell import AskTell, Point, SearchSpace
from .ask_tell.annealing import SimulatedAnnealing
from .ask_tell.local_search import LocalSearch
from .ask_tell.mcts import MonteCarloTreeSearch
from .ask_tell.random_search import RandomSearch
from .ask_tell.tpe import TreeParzenEstimator, import_optuna
from .decision_space import DecisionSpace

_FRUITLESS_ASKS = 500
"""After how many points without a new module to end."""

_Make = Callable[[SearchSpace, random.Random, Callable[[], float]], AskTell]

_ALGORITHMS: dict[str, _Make] = {
    "random": lambda space, generator, _: RandomSearch(space, generator),
    "tpe": lambda space, generator, _: TreeParzenEstimator(space, generator),
    "annealing": SimulatedAnnealing,
    "local-search": lambda space, generator, _: LocalSearch(space, generator),
    "mcts": lambda space, generator, _: MonteCarloTreeSearch(space, generator),
}

ASK_TELL = tuple(_ALGORITHMS)
"""The names of the algorithms."""


@dataclass
class _Run:
    """The state of one tuning run, from ``pre_tuning`` to ``post_tuning``.

    Parameters
    ----------
    space : DecisionSpace
        What is searched.
    algorithm : AskTell
        What searches it.
    budget : Budget
        The trials.
    known : dict[int, float]
        The time of each module measured, in seconds; infinity if it failed.
    pending : dict[int, tuple[Candidate, list[Point]]] | None
        The batch that is being measured, by module, with the points that make it.
    finished : bool
        Whether the search has ended.
    """

    space: DecisionSpace
    algorithm: AskTell
    budget: Budget
    known: dict[int, float] = field(default_factory=dict)
    pending: dict[int, tuple[Candidate, list[Point]]] | None = None
    finished: bool = False


@derived_object
class AskTellStrategy(PySearchStrategy):
    """A generic search algorithm over the decisions of a task's design spaces.

    A module is measured once in a run. An algorithm that asks for it again, by the same decisions
    or by others, is told the known time and is charged nothing; a point that does not replay or
    that a postprocessor rejects is told as infinitely slow. The database and the cost model are
    not asked.

    Parameters
    ----------
    name : str
        One of ``ASK_TELL``.

    Raises
    ------
    ValueError
        If there is no algorithm of that name.
    ImportError
        If the name is "tpe" and Optuna is not installed.
    """

    def __init__(self, name: str) -> None:
        """Constructor"""
        super().__init__()
        if name not in _ALGORITHMS:
            raise ValueError(f"name is {name!r}, expected one of {', '.join(ASK_TELL)}")
        if name == "tpe":
            import_optuna()
        self._name = str(name)
        self._run: _Run | None = None

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        # TVM calls this several times on one object. The context itself is not kept: it holds this
        # object, and no collector would see the cycle.
        self._mod = context.mod
        self._task = str(context.task_name)
        self._seed = int(context.rand_state)
        self._postprocs = list(context.space_generator.postprocs or [])
        self._run = None

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Begin a run; see ``SearchStrategy.pre_tuning``.

        Parameters
        ----------
        max_trials : int
            The most trials of this task.
        num_trials_per_iter : int
            The most trials of a batch; all but "random" measure one at a time.
        design_spaces : Sequence[Schedule]
            The design spaces of the task.
        database : Database | None
            Not used.
        cost_model : CostModel | None
            Not used.

        Raises
        ------
        ValueError
            If a run has begun already, or there is nothing to search.
        """
        if self._run is not None:
            raise ValueError(
                f"{self._task}: pre_tuning was called twice; call post_tuning in between"
            )
        if not design_spaces:
            raise ValueError(
                f"{self._task}: design_spaces is empty, expected at least one schedule; "
                "the space generator made none for this module"
            )
        generator = random.Random(self._seed)
        replayer = Replayer(self._mod, self._postprocs, generator)
        space = DecisionSpace([schedule.trace for schedule in design_spaces], replayer)
        budget = Budget(int(max_trials), int(num_trials_per_iter))

        def spent() -> float:
            return budget.trials / max(1, budget.max_trials)

        self._run = _Run(space, _ALGORITHMS[self._name](space, generator, spent), budget)

    def post_tuning(self) -> None:
        """End the run and drop its state.

        Raises
        ------
        ValueError
            If no run has begun.
        """
        self._running("post_tuning")
        self._run = None

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next batch to measure.

        Returns
        -------
        measure_candidates : list[MeasureCandidate] | None
            At most ``num_trials_per_iter``, one at least; None when the trials are spent, the
            space is exhausted or nothing new is found, and ever after.

        Raises
        ------
        ValueError
            If no run has begun, or the results of the last batch have not been told.
        """
        run = self._running("generate_measure_candidates")
        if run.pending is not None:
            raise ValueError(
                f"{self._task}: generate_measure_candidates was called before the results of the "
                f"last {len(run.pending)} candidates; call notify_runner_results first"
            )
        if run.finished or run.budget.room <= 0:
            return None
        with Profiler.timeit("AskTell/Generate"):
            run.pending = self._next_batch(run)
            if run.pending is None:
                run.finished = True
                return None
            return [candidate.measure_candidate() for candidate, _ in run.pending.values()]

    def _next_batch(self, run: _Run) -> dict[int, tuple[Candidate, list[Point]]] | None:
        """Ask until there is something to measure; None if nothing is left, or nothing is found."""
        fruitless = 0
        while fruitless < _FRUITLESS_ASKS:
            points = run.algorithm.ask(run.budget.room)
            if not points:
                return None
            batch: dict[int, tuple[Candidate, list[Point]]] = {}
            for point in points:
                candidate = run.space.realise(point)
                if candidate is None:
                    run.algorithm.tell(point, math.inf)
                elif candidate.module in run.known:
                    run.algorithm.tell(point, run.known[candidate.module])
                else:
                    batch.setdefault(candidate.module, (candidate, []))[1].append(point)
            if batch:
                return batch
            fruitless += len(points)
        logger.warning(
            "%s: %s ends after %d trials: the last %d points that it asked for fail or are known",
            self._task,
            self._name,
            run.budget.trials,
            fruitless,
        )
        return None

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Take the results of the last batch.

        Parameters
        ----------
        measure_candidates : Sequence[MeasureCandidate]
            The candidates of the last batch, in its order.
        results : Sequence[RunnerResult]
            One for each.

        Raises
        ------
        ValueError
            If no run has begun, or the results are not those of the last batch.
        """
        run = self._running("notify_runner_results")
        pending = run.pending or {}
        if not len(pending) == len(measure_candidates) == len(results):
            raise ValueError(
                f"{self._task}: notify_runner_results was called with {len(measure_candidates)} "
                f"candidates and {len(results)} results, expected {len(pending)} of each"
            )
        for (module, (_, points)), result in zip(pending.items(), results, strict=True):
            times = valid_secs(result.run_secs)
            secs = mean(times) if times else math.inf
            run.known[module] = secs
            for point in points:
                run.algorithm.tell(point, secs)
        run.budget.trials += len(pending)
        run.pending = None

    def clone(self) -> SearchStrategy:
        """A strategy of the same configuration, without state."""
        return AskTellStrategy(self._name)

    def _running(self, caller: str) -> _Run:
        if self._run is None:
            raise ValueError(f"{caller} was called outside a run; call pre_tuning first")
        return self._run
