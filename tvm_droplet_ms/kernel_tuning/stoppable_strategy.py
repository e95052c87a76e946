# SPDX-License-Identifier: Apache-2.0
"""A strategy that ends when rules say so, around any other."""

from collections.abc import Callable, Sequence

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    MeasureCandidate,
    PySearchStrategy,
    SearchStrategy,
)

from ..search_strategy.published.candidates import mean, valid_secs
from .stop_rules import StopRules

OnBatch = Callable[[Sequence[RunnerResult]], None]
"""Told the results of each batch."""


@derived_object
class StoppableStrategy(PySearchStrategy):
    """Forwards to another strategy until its rules have a reason to end.

    TVM ends a task whose strategy has no candidates (``task_scheduler.cc``). So a run ends after
    the batch that is being measured, and no exception passes through TVM's C++. ``rules``: when to
    end; told the results. ``on_batch``: told the results of each batch, after the rules.
    """

    def __init__(self, strategy: SearchStrategy, rules: StopRules, on_batch: OnBatch) -> None:
        """Constructor"""
        super().__init__()
        self._strategy = strategy
        self._rules = rules
        self._on_batch = on_batch

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._strategy._initialize_with_tune_context(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Begin a run; see ``SearchStrategy.pre_tuning``."""
        self._strategy.pre_tuning(
            max_trials, num_trials_per_iter, list(design_spaces), database, cost_model
        )

    def post_tuning(self) -> None:
        """End the run."""
        self._strategy.post_tuning()

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next batch; None at the end of the run."""
        if self._rules.reason:
            return None
        batch = self._strategy.generate_measure_candidates()
        return None if batch is None else list(batch)

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Take the results of the last batch."""
        self._strategy.notify_runner_results(list(measure_candidates), list(results))
        times = [valid_secs(result.run_secs) for result in results]
        self._rules.tell([mean(secs) if secs else None for secs in times])
        self._on_batch(results)

    def clone(self) -> SearchStrategy:
        """The same around a clone of the strategy."""
        return StoppableStrategy(self._strategy.clone(), self._rules, self._on_batch)
