# SPDX-License-Identifier: Apache-2.0
"""When a run ends before its trials are spent. Imports no TVM."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class StopRules:
    """The rules of one run, and what it has seen.

    - ``is_due``: why the run should end now, from outside: its time, or a signal; empty while it
      should not.
    - ``patience``: trials without a gain after which to end; None for no limit.
    - ``target_secs``: the time of the kernel at which to end; None for none.
    - ``best_secs``: the best mean time before the run, in seconds; infinity where there is none.
    - ``since_gain``: trials since the best time was found.
    """

    is_due: Callable[[], str]
    patience: int | None = None
    target_secs: float | None = None
    best_secs: float = math.inf
    since_gain: int = field(default=0, init=False)
    _failed: str = field(default="", init=False)

    def tell(self, times: Sequence[float | None]) -> None:
        """Take the mean times of a batch, None for failures, in seconds."""
        for secs in times:
            self.since_gain += 1
            if secs is not None and secs < self.best_secs:
                self.best_secs, self.since_gain = secs, 0

    def fail(self, reason: str) -> None:
        """End the run, because it cannot go on."""
        self._failed = self._failed or reason

    @property
    def reason(self) -> str:
        """The reason that the run should end now; empty while it should not."""
        due = self._failed or self.is_due()
        if due:
            return due
        if self.target_secs is not None and self.best_secs <= self.target_secs:
            return "target"
        if self.patience is not None and self.since_gain >= self.patience:
            return "patience"
        return ""
