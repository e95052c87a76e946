# SPDX-License-Identifier: Apache-2.0
"""The rules that end the tuning of a kernel before its trials are spent."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tvm.s_tir.meta_schedule.runner import RunnerResult

from ...search_strategy.candidates import is_unmeasured
from ...search_strategy.published.candidates import mean, valid_secs


@dataclass
class StopRules:
    """The stop rules of one run, and its progress.

    - ``is_due``: returns the external reason to end now, such as the time limit, a signal or a full
      disk; empty if there is none.
    - ``patience``: end after this many trials without a gain; None for no limit.
    - ``target_secs``: end when the kernel takes at most this many seconds; None for no limit.
    - ``best_secs``: the best mean time, at first the best before the run.
    """

    is_due: Callable[[], str]
    patience: int | None = None
    target_secs: float | None = None
    best_secs: float = math.inf
    since_gain: int = field(default=0, init=False)

    def tell(self, results: Sequence[RunnerResult]) -> None:
        """Take the results of a batch; what the machine failed to measure does not count."""
        for result in results:
            if is_unmeasured(result.run_secs, result.error_msg):
                continue
            self.since_gain += 1
            secs = valid_secs(result.run_secs)
            if secs and mean(secs) < self.best_secs:
                self.best_secs, self.since_gain = mean(secs), 0

    @property
    def reason(self) -> str:
        """The reason to end the run now; empty if there is none."""
        if due := self.is_due():
            return due
        if self.target_secs is not None and self.best_secs <= self.target_secs:
            return "target"
        if self.patience is not None and self.since_gain >= self.patience:
            return "patience"
        return ""
