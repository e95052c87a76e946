# SPDX-License-Identifier: Apache-2.0
"""The rules that end the tuning of a kernel or a model before its trials are spent."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm_ffi import structural_hash

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from ...search_strategy.candidates import is_unmeasured
from ...search_strategy.published.candidates import mean, valid_secs


@derived_object
class StopRules(PyMeasureCallback):
    """The stop rules of one run, a callback that follows the run's progress.

    - ``is_due``: returns the external reason to end now, such as the time limit, a signal or a full
      disk; empty if there is none.
    - ``patience``: end after this many trials of all kernels without a gain; None for no limit.
    - ``target_secs``: end when a kernel takes at most this many seconds; None for no limit.
    - ``since_gain``: the number of trials since the last gain of a kernel.
    """

    def __init__(
        self,
        is_due: Callable[[], str] = lambda: "",
        patience: int | None = None,
        target_secs: float | None = None,
    ) -> None:
        """Constructor"""
        super().__init__()
        self.since_gain = 0
        self._is_due, self._patience, self._target_secs = is_due, patience, target_secs
        self._best: dict[int, float] = {}

    @property
    def best_secs(self) -> float:
        """The best mean time of a kernel in seconds; infinity before the first success."""
        return min(self._best.values(), default=math.inf)

    def know(self, kernel: int, secs: float) -> None:
        """Record the best time of a kernel from earlier runs, by the hash of its workload."""
        self._best[kernel] = secs

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        """Take the results of a batch; see ``MeasureCallback.apply``."""
        self.tell(structural_hash(task_scheduler.tasks_[task_id].ctx.mod), runner_results)

    def tell(self, kernel: int, results: Sequence[RunnerResult]) -> None:
        """Take the results of a kernel; what the machine failed to measure does not count."""
        for result in results:
            if is_unmeasured(result.run_secs, result.error_msg):
                continue
            self.since_gain += 1
            secs = valid_secs(result.run_secs)
            if secs and mean(secs) < self._best.get(kernel, math.inf):
                self._best[kernel], self.since_gain = mean(secs), 0

    @property
    def reason(self) -> str:
        """The reason to end the run now; empty if there is none."""
        if due := self._is_due():
            return due
        if self._target_secs is not None and self.best_secs <= self._target_secs:
            return "target"
        if self._patience is not None and self.since_gain >= self._patience:
            return "patience"
        return ""
