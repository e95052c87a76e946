# SPDX-License-Identifier: Apache-2.0
"""Lifecycle of a search strategy: call-order checks and the trial budget."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.postproc import Postproc
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate, PySearchStrategy
from tvm.target import Target

from .search import Batch, Budget, Search

if TYPE_CHECKING:
    from tvm.s_tir.meta_schedule.cost_model import CostModel


@dataclass(frozen=True)
class Task:
    """The tuning task: the parts of a ``TuneContext`` that a strategy needs.

    It does not keep the context, which holds its strategy: no collector would see the cycle.
    """

    name: str
    mod: IRModule
    target: Target
    postprocs: Sequence[Postproc]
    seed: int
    num_threads: int


@dataclass
class PreTuningArgs:
    """The arguments of ``pre_tuning``; the lifecycle counts the trials of the budget."""

    budget: Budget
    design_spaces: Sequence[Schedule]
    database: Database | None
    cost_model: Optional["CostModel"]


@dataclass
class _Run:
    """A search with its batches, which would be a reference cycle if the search held them.

    ``batch``: the candidates whose results are missing.
    """

    search: Search
    batches: Iterator[Batch]
    batch: Batch = field(default_factory=list)
    finished: bool = False


class StrategyLifecycle(PySearchStrategy):
    """Base class of search strategies that make a new search for every run.

    It keeps the budget, and raises a ``ValueError`` for calls in the wrong order. TVM's own
    strategies then fail an internal check, or continue with the results of another batch. A
    subclass is decorated with ``derived_object``, and defines ``_begin`` and ``clone``.
    """

    _scope = "Droplet"  # The prefix of its profiler scopes.

    def __init__(self) -> None:
        """Constructor"""
        super().__init__()
        self._run: _Run | None = None

    def _begin(self, task: Task, args: PreTuningArgs) -> Search:
        """Make the search of a run."""
        raise NotImplementedError

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        # TVM calls this several times on one object.
        self._task = Task(
            str(context.task_name),
            context.mod,
            context.target,
            list(context.space_generator.postprocs or []),
            int(context.rand_state),
            int(context.num_threads),
        )
        self._run = None

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Database | None = None,
        cost_model: Optional["CostModel"] = None,
    ) -> None:
        """Begin a run; the parameters are those of ``SearchStrategy.pre_tuning``."""
        name = self._task.name
        if self._run is not None:
            raise ValueError(f"{name}: pre_tuning was called twice; call post_tuning in between")
        if not design_spaces:
            raise ValueError(f"{name}: design_spaces is empty, expected at least one schedule")
        check_at_least("num_trials_per_iter", num_trials_per_iter, 1)
        budget = Budget(int(max_trials), int(num_trials_per_iter))
        args = PreTuningArgs(budget, design_spaces, database, cost_model)
        search = self._begin(self._task, args)
        self._run = _Run(search, search.batches())

    def post_tuning(self) -> None:
        """End the run and drop its state."""
        self._running("post_tuning").search.end()
        self._run = None

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next batch to measure: 1 to ``num_trials_per_iter`` candidates.

        None once the trials are spent or the search has ended.
        """
        run = self._running("generate_measure_candidates")
        if run.batch:
            raise ValueError(
                f"{self._task.name}: generate_measure_candidates was called before the results of "
                f"the last {len(run.batch)} candidates; call notify_runner_results first"
            )
        if run.finished or run.search.budget.room <= 0:
            return None
        with Profiler.timeit(f"{self._scope}/Generate"):
            run.batch = next(run.batches, [])
            run.finished = not run.batch
            return [candidate.measure_candidate() for candidate in run.batch] or None

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Take the results of the last batch, one for each of its candidates in their order."""
        run = self._running("notify_runner_results")
        if not len(run.batch) == len(measure_candidates) == len(results):
            raise ValueError(
                f"{self._task.name}: notify_runner_results was called with "
                f"{len(measure_candidates)} candidates and {len(results)} results, expected "
                f"{len(run.batch)} of each"
            )
        if run.batch:
            with Profiler.timeit(f"{self._scope}/Notify"):
                run.search.tell(run.batch, list(results))
        run.search.budget.trials += len(run.batch)
        run.batch = []

    def _running(self, caller: str) -> _Run:
        if self._run is None:
            raise ValueError(f"{caller} was called outside a run; call pre_tuning first")
        return self._run


def check_at_least(name: str, value: object, least: int) -> None:
    """Raise ``ValueError`` for anything but an integer of at least a minimum."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, expected an integer of at least {least}")
