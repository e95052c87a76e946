# SPDX-License-Identifier: Apache-2.0
"""Logs a search, with its progress as an attribute of the log records."""

import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tvm.s_tir import Trace

from .candidates import TaskHistory
from .logger import logger
from .published.candidates import mean
from .published.search import Phase
from .stopping import Forecast, StopRule

Event = Literal["phase", "batch", "step", "converged", "finished"]


@dataclass(frozen=True)
class SearchProgress:
    """The state of a task's search: the attribute ``progress`` of its log records.

    Parameters
    ----------
    task : str
        The name of the task.
    event : Event
        ``"phase"`` (a phase begins), ``"batch"`` (a batch was measured), ``"step"`` (a descent
        found a new best schedule), ``"converged"`` or ``"finished"``.
    phase : Phase
        The phase of the search.
    trials : int
        Number of trials that this run has measured for the task.
    best_secs : float
        The best mean time so far in seconds; infinity if there is none.
    best_trace : Trace | None
        The trace of the best schedule; None if there is none.
    dropped : Mapping[str, int]
        Number of dropped proposals so far, by the postprocessor or the error that dropped them.
        Proposals that TVM's evolution drops are not included, because it does not report them.
    forecast : Forecast | None
        The expected gain of further trials; None before the descent.
    """

    task: str
    event: Event
    phase: Phase
    trials: int
    best_secs: float
    best_trace: Trace | None
    dropped: Mapping[str, int]
    forecast: Forecast | None = None


class SearchLogger:
    """Logs the state of a task's search, and the reasons of failures.

    ``dropped``: the number of dropped proposals by cause, read for each log record.
    """

    def __init__(
        self, task: str, history: TaskHistory, dropped: Mapping[str, int], rule: StopRule
    ) -> None:
        self._task = task
        self._history = history
        self._dropped = dropped
        self._rule = rule
        self.phase: Phase = "explore"
        self._trials = 0
        self._failures: list[str] = []

    def begin(self, phase: Phase, message: str) -> None:
        """Log that a phase begins."""
        self.phase = phase
        self.log("phase", message)

    def measured(self, count: int, failures: list[str], unmeasured: list[str]) -> None:
        """Log a measured batch, with the errors of failed and of unmeasured candidates."""
        self._trials += count
        self._failures += failures + unmeasured
        message = f"{count} measured, {len(failures)} failed"
        if unmeasured:
            message += f", {len(unmeasured)} not measured"
            logger.warning(
                "%s: %d candidates could not be measured and may be tried again; the first "
                "error: %s",
                self._task,
                len(unmeasured),
                unmeasured[0],
            )
        self.log("batch", message)
        self.warn_if_all_failed()

    def warn_if_all_failed(self) -> None:
        """Warn with the first error if no measurement has succeeded."""
        if self._failures and self._history.best() is None:
            logger.warning(
                "%s: all %d candidates failed; the first error: %s",
                self._task,
                len(self._failures),
                self._failures[0],
            )

    def warn_of_empty_space(self, drawn: int) -> None:
        """Warn that nothing could be proposed, after drawing random traces to find out why."""
        logger.warning(
            "%s: the search found no candidate to measure; of %d drawn at random, %s",
            self._task,
            drawn,
            self.drops(),
        )

    def drops(self) -> str:
        """The number of dropped proposals, by cause."""
        dropped = Counter(self._dropped).most_common()
        return f"proposals dropped: {', '.join(f'{n} by {who}' for who, n in dropped) or 'none'}"

    def log(self, event: Event, message: str) -> None:
        """Log a message with the state of the search."""
        if not logger.isEnabledFor(logging.INFO):
            return
        best = self._history.best()
        best_secs = math.inf if best is None else mean(best.secs)
        progress = SearchProgress(
            task=self._task,
            event=event,
            phase=self.phase,
            trials=self._trials,
            best_secs=best_secs,
            best_trace=None if best is None else best.trace,
            dropped=dict(self._dropped),
            forecast=self._rule.forecast,
        )
        logger.info(
            "%s: %s, trial %d, best %s: %s",
            self._task,
            self.phase,
            self._trials,
            "none yet" if best is None else f"{best_secs * 1e6:.4g} us",
            message,
            extra={"progress": progress},
        )
