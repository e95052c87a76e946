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
"""PostOptStrategy: the droplet that TVM has, as a search strategy and inside the budget."""

import random
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel, RandomModel
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    EvolutionarySearch,
    MeasureCandidate,
    PySearchStrategy,
    SearchStrategy,
)

from ...search_strategy.candidates import Candidate, Replayer
from ...search_strategy.decisions import largest_parallel_extent
from ...search_strategy.history import History, valid_secs
from ...search_strategy.log import logger
from ...search_strategy.search import Budget
from .post_opt_descent import MendedDescent, PostOptDescent, ShippedDescent


@dataclass
class _Run:
    """The state of one tuning run, from ``pre_tuning`` to ``post_tuning``."""

    budget: Budget
    replayer: Replayer
    history: History
    generator: random.Random
    parallel_limit: int
    exploring: bool = True
    descent: PostOptDescent | None = None
    unmeasured: list[MeasureCandidate] = field(default_factory=list)
    results: list[RunnerResult] = field(default_factory=list)
    pending: list[MeasureCandidate] | None = None


@derived_object
class PostOptStrategy(PySearchStrategy):
    """Evolutionary search, then TVM's own droplet from the best record, in one budget.

    What ``tune_tir(..., post_optimization=True)`` does, as a search strategy, so that any builder
    and runner measures it and its trials are charged. The faults of TVM's code are kept, and named
    at ``RecordedTrace``, ``ShippedDroplet`` and ``ShippedDescent``; ``mended=True`` has none of
    them. When the descent ends, so does the task, and the trials that are left are not used.

    What of TVM's code a strategy cannot do: build and run by its own, with a timeout of 10 s and
    fewer runs than the search's (``Space.run``); store a time under another trace than that of the
    program measured (``Space.run``; 25% of the candidates); append the winner to the database file
    again (``PostOpt.run``); begin when all tasks are done, for every workload of the file.

    Parameters
    ----------
    explore_trials : int
        The trials of the evolutionary search, its batches those of TVM. At least 1.
    mended : bool
        Whether to descend without the faults.
    batch_size : int
        Up to how many candidates a round of the descent is filled with longer steps, in place of
        the number of the host's CPUs. At least 1.
    descent_trials : int
        The most trials of the descent. At least 2.
    modules : Container[int] | None
        The structural hashes of the modules that a table has; None where all can be measured. A
        candidate of TVM's droplet may lie outside MetaSchedule's space: without postprocessors, or
        with stale ones. It then gets those of the task; if it is outside even so, it is a trial
        that fails.
    evolutionary : Mapping[str, Any] | None
        Options of TVM's ``EvolutionarySearch``.

    Raises
    ------
    ValueError
        If one of the numbers is out of its range.
    """

    def __init__(
        self,
        *,
        explore_trials: int = 64,
        mended: bool = False,
        batch_size: int = 16,
        descent_trials: int = 100,
        modules: Container[int] | None = None,
        evolutionary: Mapping[str, Any] | None = None,
    ) -> None:
        """Constructor"""
        super().__init__()
        _check_at_least("explore_trials", explore_trials, 1)
        _check_at_least("batch_size", batch_size, 1)
        _check_at_least("descent_trials", descent_trials, 2)
        self._explore_trials = explore_trials
        self._mended = mended
        self._batch_size = batch_size
        self._descent_trials = descent_trials
        self._modules = modules
        self._evolutionary = dict(evolutionary or {})
        self._evolution = EvolutionarySearch(**self._evolutionary)
        self._run: _Run | None = None

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        # The context itself is not kept: it holds this object, and no collector sees the cycle.
        self._mod = context.mod
        self._target = context.target
        self._task = str(context.task_name)
        self._seed = int(context.rand_state)
        self._postprocs = list(context.space_generator.postprocs or [])
        self._run = None
        self._evolution._initialize_with_tune_context(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Begin a run; see ``SearchStrategy.pre_tuning``.

        Raises
        ------
        ValueError
            If a run has begun already, or there is no design space.
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
        _check_at_least("num_trials_per_iter", num_trials_per_iter, 1)
        generator = random.Random(self._seed)
        replayer = Replayer(self._mod, self._postprocs, generator)
        history = History(self._mod, self._target)
        if database is not None:
            history.load(database, replayer)
        self._evolution.pre_tuning(
            min(self._explore_trials, max_trials),
            num_trials_per_iter,
            design_spaces,
            history.view if database is None else database,
            RandomModel() if cost_model is None else cost_model,
        )
        limit = largest_parallel_extent(space.trace for space in design_spaces)
        budget = Budget(max_trials, num_trials_per_iter)
        self._run = _Run(budget, replayer, history, generator, limit)

    def post_tuning(self) -> None:
        """End the run and drop its state.

        Raises
        ------
        ValueError
            If no run has begun.
        """
        run = self._running("post_tuning")
        if run.exploring:
            self._evolution.post_tuning()
        self._run = None

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next batch to measure.

        Returns
        -------
        measure_candidates : list[MeasureCandidate] | None
            At most ``num_trials_per_iter``; None when the trials are spent or the descent has
            ended, and ever after.

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
        if run.budget.room <= 0:
            return None
        with Profiler.timeit("PostOpt/Generate"):
            if run.exploring:
                run.pending = self._explore(run)
            if not run.exploring:
                run.pending = self._descend(run)
        return run.pending

    def _explore(self, run: _Run) -> list[MeasureCandidate] | None:
        """A batch of the evolutionary search; None at its end, where the descent begins."""
        candidates = self._evolution.generate_measure_candidates()
        if candidates is not None:
            return list(candidates)
        self._evolution.post_tuning()
        run.exploring = False
        best = run.history.best()
        limits = {"batch_size": self._batch_size, "max_trials": self._descent_trials}
        if best is not None and self._mended:
            run.descent = MendedDescent(
                best, run.replayer, run.history, run.parallel_limit, **limits
            )
        elif best is not None:
            run.descent = ShippedDescent(best, run.replayer, run.generator, self._modules, **limits)
        return None

    def _descend(self, run: _Run) -> list[MeasureCandidate] | None:
        """A part of a round of the descent; None at its end."""
        if run.descent is None:
            return None
        if not run.unmeasured:
            run.unmeasured = [one.measure_candidate() for one in run.descent.ask()]
        if not run.unmeasured:
            logger.info(
                "%s: TVM's droplet has ended, %d trials are left; not in the space: %s",
                self._task,
                run.budget.max_trials - run.budget.trials,
                dict(run.replayer.dropped),
            )
            run.descent = None
            return None
        return run.unmeasured[: run.budget.room]

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Take the results of the last batch.

        Raises
        ------
        ValueError
            If no run has begun, or the results are not those of the last batch.
        """
        run = self._running("notify_runner_results")
        pending = run.pending or []
        if not len(pending) == len(measure_candidates) == len(results):
            raise ValueError(
                f"{self._task}: notify_runner_results was called with {len(measure_candidates)} "
                f"candidates and {len(results)} results, expected {len(pending)} of each"
            )
        run.pending = None
        with Profiler.timeit("PostOpt/Notify"):
            self._tell(run, pending, measure_candidates, results)

    def _tell(
        self,
        run: _Run,
        pending: Sequence[MeasureCandidate],
        measure_candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        run.budget.trials += len(pending)
        for candidate, result in zip(pending, results):
            run.history.add(Candidate.of(candidate.sch), valid_secs(result.run_secs))
        if run.exploring:
            self._evolution.notify_runner_results(measure_candidates, results)
            return
        run.results += results
        del run.unmeasured[: len(pending)]
        if run.descent is not None and not run.unmeasured:
            run.descent.tell(run.results)
            run.results = []

    def clone(self) -> SearchStrategy:
        """A strategy of the same configuration, without state."""
        return PostOptStrategy(
            explore_trials=self._explore_trials,
            mended=self._mended,
            batch_size=self._batch_size,
            descent_trials=self._descent_trials,
            modules=self._modules,
            evolutionary=self._evolutionary,
        )

    def _running(self, caller: str) -> _Run:
        if self._run is None:
            raise ValueError(f"{caller} was called outside a run; call pre_tuning first")
        return self._run


def _check_at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, expected an integer of at least {least}")
