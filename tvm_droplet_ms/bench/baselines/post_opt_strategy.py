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
"""PostOptStrategy: TVM's own droplet, its faults fixed, as a search strategy inside the budget."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import RandomModel
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    EvolutionarySearch,
    MeasureCandidate,
    SearchStrategy,
)

from ...search_strategy.candidates import Candidate, Replayer
from ...search_strategy.decisions import largest_parallel_extent
from ...search_strategy.history import History, valid_secs
from ...search_strategy.lifecycle import (
    Start,
    StrategyLifecycle,
    Task,
    TaskSearch,
    check_at_least,
)
from ...search_strategy.log import logger
from .post_opt_descent import PostOptDescent


@dataclass(frozen=True)
class _Options:
    """Options of ``PostOptStrategy``; see there."""

    explore_trials: int
    batch_size: int
    descent_trials: int
    evolutionary: dict[str, Any]


class _Run:
    """The search of one run: evolution, then the descent."""

    def __init__(
        self, options: _Options, evolution: EvolutionarySearch, task: Task, start: Start
    ) -> None:
        self._options = options
        self._task = task
        self._budget = start.budget
        self._replayer = Replayer(task.mod, task.postprocs, random.Random(task.seed))
        self._history = History(task.mod, task.target)
        if start.database is not None:
            self._history.load(start.database, self._replayer)
        self._parallel_limit = largest_parallel_extent(space.trace for space in start.design_spaces)
        self._evolution: EvolutionarySearch | None = evolution
        evolution.pre_tuning(
            min(options.explore_trials, start.budget.max_trials),
            start.budget.num_trials_per_iter,
            start.design_spaces,
            self._history.view if start.database is None else start.database,
            RandomModel() if start.cost_model is None else start.cost_model,
        )
        self._descent: PostOptDescent | None = None
        self._unmeasured: list[MeasureCandidate] = []
        self._results: list[RunnerResult] = []

    def propose(self) -> list[MeasureCandidate]:
        if self._evolution is not None:
            candidates = self._evolution.generate_measure_candidates()
            if candidates is not None:
                return list(candidates)
            self._begin_descent()
        return self._descend()

    def _begin_descent(self) -> None:
        self.end()
        best = self._history.best()
        if best is not None:
            self._descent = PostOptDescent(
                best,
                self._replayer,
                self._history,
                self._parallel_limit,
                batch_size=self._options.batch_size,
                max_trials=self._options.descent_trials,
            )

    def _descend(self) -> list[MeasureCandidate]:
        """A part of a round of the descent; nothing at its end."""
        if self._descent is None:
            return []
        if not self._unmeasured:
            self._unmeasured = [candidate.measure_candidate() for candidate in self._descent.ask()]
        if not self._unmeasured:
            logger.info(
                "%s: TVM's droplet has ended, %d trials are left",
                self._task.name,
                self._budget.max_trials - self._budget.trials,
            )
        return self._unmeasured[: self._budget.room]

    def tell(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        for candidate, result in zip(measure_candidates, results, strict=True):
            self._history.add(Candidate.of(candidate.sch), valid_secs(result.run_secs))
        if self._evolution is not None:
            self._evolution.notify_runner_results(measure_candidates, results)
            return
        self._results += results
        del self._unmeasured[: len(measure_candidates)]
        if self._descent is not None and not self._unmeasured:
            self._descent.tell(self._results)
            self._results = []

    def end(self) -> None:
        if self._evolution is not None:
            self._evolution.post_tuning()
        self._evolution = None


@derived_object
class PostOptStrategy(StrategyLifecycle):
    """Evolutionary search, then TVM's own droplet from the best record, in one budget.

    The search of ``tune_tir(..., post_optimization=True)``, so that any builder and runner measures
    it and its trials are charged. ``post_opt.py`` lists the faults of TVM's code that are fixed.
    The task ends with the descent; trials that are left are not used.

    Parameters
    ----------
    explore_trials : int
        Trials of the evolutionary search, in TVM's batches. At least 1.
    batch_size : int
        Longer steps fill a round of the descent up to this many candidates. At least 1.
    descent_trials : int
        Maximum number of trials of the descent. At least 2.
    evolutionary : Mapping[str, Any] | None
        Options of TVM's ``EvolutionarySearch``.

    Raises
    ------
    ValueError
        If one of the numbers is out of its range.
    """

    _scope = "PostOpt"

    def __init__(
        self,
        *,
        explore_trials: int = 64,
        batch_size: int = 16,
        descent_trials: int = 100,
        evolutionary: Mapping[str, Any] | None = None,
    ) -> None:
        """Constructor"""
        super().__init__()
        check_at_least("explore_trials", explore_trials, 1)
        check_at_least("batch_size", batch_size, 1)
        check_at_least("descent_trials", descent_trials, 2)
        self._options = _Options(
            explore_trials, batch_size, descent_trials, dict(evolutionary or {})
        )
        self._evolution = EvolutionarySearch(**self._options.evolutionary)

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        super()._initialize_with_tune_context(context)
        self._evolution._initialize_with_tune_context(context)

    def _begin(self, task: Task, start: Start) -> TaskSearch:
        return _Run(self._options, self._evolution, task, start)

    def clone(self) -> SearchStrategy:
        """A strategy of the same configuration, without state."""
        return PostOptStrategy(**vars(self._options))
