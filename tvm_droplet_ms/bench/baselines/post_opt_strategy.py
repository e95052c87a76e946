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
from collections import Counter
from collections.abc import Container, Mapping, Sequence
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
    PreTuningArgs,
    StrategyLifecycle,
    Task,
    TaskSearch,
    check_at_least,
)
from ...search_strategy.logger import logger
from .post_opt_descent import MendedDescent, PostOptDescent, ShippedDescent


@dataclass(frozen=True)
class _Options:
    """What ``PostOptStrategy`` is configured with; see there."""

    explore_trials: int
    mended: bool
    batch_size: int
    descent_trials: int
    modules: Container[int] | None
    evolutionary: dict[str, Any]
    dropped: Counter[str]


class _Run:
    """The search of one run: evolution, then the descent."""

    def __init__(
        self, options: _Options, evolution: EvolutionarySearch, task: Task, start: PreTuningArgs
    ) -> None:
        self._options = options
        self._task = task
        self._budget = start.budget
        self._generator = random.Random(task.seed)
        self._replayer = Replayer(task.mod, task.postprocs, self._generator, options.dropped)
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
        limits = {
            "batch_size": self._options.batch_size,
            "max_trials": self._options.descent_trials,
        }
        if best is not None and self._options.mended:
            self._descent = MendedDescent(
                best, self._replayer, self._history, self._parallel_limit, **limits
            )
        elif best is not None:
            self._descent = ShippedDescent(
                best, self._replayer, self._generator, self._options.modules, **limits
            )

    def _descend(self) -> list[MeasureCandidate]:
        """A part of a round of the descent; nothing at its end."""
        if self._descent is None:
            return []
        if not self._unmeasured:
            self._unmeasured = [one.measure_candidate() for one in self._descent.ask()]
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
            self._history.add(Candidate.from_schedule(candidate.sch), valid_secs(result.run_secs))
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
    dropped : Counter[str] | None
        Where to count the positions that were no trial since their traces did not replay, by the
        postprocessor or the error that dropped them; clones count there too. None for a new one.

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
        mended: bool = False,
        batch_size: int = 16,
        descent_trials: int = 100,
        modules: Container[int] | None = None,
        evolutionary: Mapping[str, Any] | None = None,
        dropped: Counter[str] | None = None,
    ) -> None:
        """Constructor"""
        super().__init__()
        check_at_least("explore_trials", explore_trials, 1)
        check_at_least("batch_size", batch_size, 1)
        check_at_least("descent_trials", descent_trials, 2)
        self._options = _Options(
            explore_trials,
            mended,
            batch_size,
            descent_trials,
            modules,
            dict(evolutionary or {}),
            Counter() if dropped is None else dropped,
        )
        self._evolution = EvolutionarySearch(**self._options.evolutionary)

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        super()._initialize_with_tune_context(context)
        self._evolution._initialize_with_tune_context(context)

    def _begin(self, task: Task, start: PreTuningArgs) -> TaskSearch:
        return _Run(self._options, self._evolution, task, start)

    def clone(self) -> SearchStrategy:
        """A strategy of the same configuration, without state."""
        return PostOptStrategy(**vars(self._options))
