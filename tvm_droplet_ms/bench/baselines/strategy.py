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

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate, SearchStrategy

from ...search_strategy.candidates import Candidate, Replayer
from ...search_strategy.history import mean, valid_secs
from ...search_strategy.lifecycle import PreTuningArgs, StrategyLifecycle, Task, TaskSearch
from ...search_strategy.logger import logger
from .ask_tell import AskTell, Point, SearchSpace
from .ask_tell.local_search import LocalSearch
from .ask_tell.random_search import RandomSearch
from .ask_tell.tpe import TreeParzenEstimator, import_optuna
from .decision_space import DecisionSpace

_FRUITLESS_ASKS = 500
"""The search ends after this many points in a row without a new module."""

_Make = Callable[[SearchSpace, random.Random], AskTell]

_ALGORITHMS: dict[str, _Make] = {
    "random": RandomSearch,
    "tpe": TreeParzenEstimator,
    "local-search": LocalSearch,
}

ASK_TELL = tuple(_ALGORITHMS)
"""The names of the algorithms."""


class _Run:
    """An algorithm, as the lifecycle of a strategy drives it."""

    def __init__(self, name: str, task: Task, start: PreTuningArgs) -> None:
        self._name = name
        self._task = task
        self._budget = start.budget
        generator = random.Random(task.seed)
        replayer = Replayer(task.mod, task.postprocs, generator)
        self._space = DecisionSpace([space.trace for space in start.design_spaces], replayer)
        self._algorithm = _ALGORITHMS[name](self._space, generator)
        self._known: dict[int, float] = {}
        """The time of each module measured, in seconds; infinity if it failed."""
        self._batch: dict[int, tuple[Candidate, list[Point]]] = {}
        """The batch under measurement, by module, with the points that make each."""

    def propose(self) -> list[MeasureCandidate]:
        self._batch = self._next_batch()
        return [candidate.measure_candidate() for candidate, _ in self._batch.values()]

    def _next_batch(self) -> dict[int, tuple[Candidate, list[Point]]]:
        """Ask until there is something to measure; nothing if nothing is left or found."""
        fruitless = 0
        while fruitless < _FRUITLESS_ASKS:
            points = self._algorithm.ask(self._budget.room)
            if not points:
                return {}
            batch: dict[int, tuple[Candidate, list[Point]]] = {}
            for point in points:
                candidate = self._space.realise(point)
                if candidate is None:
                    self._algorithm.tell(point, math.inf)
                elif candidate.module in self._known:
                    self._algorithm.tell(point, self._known[candidate.module])
                else:
                    batch.setdefault(candidate.module, (candidate, []))[1].append(point)
            if batch:
                return batch
            fruitless += len(points)
        logger.warning(
            "%s: %s ends after %d trials: the last %d points that it asked for fail or are known",
            self._task.name,
            self._name,
            self._budget.trials,
            fruitless,
        )
        return {}

    def tell(self, _: Sequence[MeasureCandidate], results: Sequence[RunnerResult]) -> None:
        for (candidate, points), result in zip(self._batch.values(), results, strict=True):
            times = valid_secs(result.run_secs)
            secs = mean(times) if times else math.inf
            self._known[candidate.module] = secs
            for point in points:
                self._algorithm.tell(point, secs)

    def end(self) -> None:
        pass


@derived_object
class AskTellStrategy(StrategyLifecycle):
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

    _scope = "AskTell"

    def __init__(self, name: str) -> None:
        """Constructor"""
        super().__init__()
        if name not in _ALGORITHMS:
            raise ValueError(f"name is {name!r}, expected one of {', '.join(ASK_TELL)}")
        if name == "tpe":
            import_optuna()
        self._name = str(name)

    def _begin(self, task: Task, start: PreTuningArgs) -> TaskSearch:
        return _Run(self._name, task, start)

    def clone(self) -> SearchStrategy:
        """A strategy of the same configuration, without state."""
        return AskTellStrategy(self._name)
