# SPDX-License-Identifier: Apache-2.0
"""A strategy that wraps another one and ends it by rules."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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

from ...search_strategy.history import is_unmeasured
from ...search_strategy.published.candidates import mean, valid_secs

OnBatch = Callable[[Sequence[RunnerResult]], None]
"""Called with the results of each batch."""


@dataclass
class StopRules:
    """The stop rules of one run, and its progress.

    - ``is_due``: returns the external reason to end now, the time limit or a signal; empty if there
      is none.
    - ``patience``: end after this many trials without a gain; None for no limit.
    - ``target_secs``: end when the kernel takes at most this many seconds; None for no limit.
    - ``best_secs``: the best mean time, at first the best before the run.
    """

    is_due: Callable[[], str]
    patience: int | None = None
    target_secs: float | None = None
    best_secs: float = math.inf
    since_gain: int = field(default=0, init=False)
    _failed: str = field(default="", init=False)

    def tell(self, times: Sequence[float | None]) -> None:
        """Take the mean times of a batch's measured candidates, in seconds; None for failures."""
        for secs in times:
            self.since_gain += 1
            if secs is not None and secs < self.best_secs:
                self.best_secs, self.since_gain = secs, 0

    def fail(self, reason: str) -> None:
        """End the run, because it cannot continue."""
        self._failed = self._failed or reason

    @property
    def reason(self) -> str:
        """The reason to end the run now; empty if there is none."""
        due = self._failed or self.is_due()
        if due:
            return due
        if self.target_secs is not None and self.best_secs <= self.target_secs:
            return "target"
        if self.patience is not None and self.since_gain >= self.patience:
            return "patience"
        return ""


@derived_object
class StoppableStrategy(PySearchStrategy):
    """Forwards to another strategy until its rules have a reason to end.

    TVM ends a task whose strategy returns no candidates (``task_scheduler.cc``). So a run ends
    after the batch in progress, and no exception passes through TVM's C++.
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
        times = [
            valid_secs(result.run_secs)
            for result in results
            if not is_unmeasured(result.run_secs, result.error_msg)
        ]
        self._rules.tell([mean(secs) if secs else None for secs in times])
        self._on_batch(results)

    def clone(self) -> SearchStrategy:
        """Wrap a clone of the strategy, with the same rules."""
        return StoppableStrategy(self._strategy.clone(), self._rules, self._on_batch)
