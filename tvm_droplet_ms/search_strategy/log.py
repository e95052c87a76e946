# SPDX-License-Identifier: Apache-2.0
"""The log of a search: the logger, and the progress that its records carry."""

import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tvm.s_tir import Trace

from .history import TaskHistory
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
        ``"phase"`` (one begins), ``"batch"`` (one was measured), ``"step"`` (the best moved
        in a descent), ``"converged"`` or ``"finished"``.
    phase : Phase
        The phase of the search.
    trials : int
        The trials that this run has measured for the task.
    best_secs : float
        The best mean time so far in seconds, infinite before there is one.
    best_trace : Trace | None
        The trace of the best, None before there is one.
    dropped : Mapping[str, int]
        Proposals outside the space so far, by the postprocessor or the error that dropped them.
        Those that TVM's evolution drops while it explores are not among them: it does not tell.
    forecast : Forecast | None
        What further trials are expected to gain; None before the descent.
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

    ``dropped``: the number of dropped proposals, by what dropped them; read at each entry.
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
        """A phase begins."""
        self.phase = phase
        self.log("phase", message)

    def measured(self, count: int, failures: list[str], unmeasured: list[str]) -> None:
        """A batch of so many candidates was measured; why some failed, or could not be measured."""
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
        """Show the first error where nothing was measured with success."""
        if self._failures and self._history.best() is None:
            logger.warning(
                "%s: all %d candidates failed; the first error: %s",
                self._task,
                len(self._failures),
                self._failures[0],
            )

    def warn_of_empty_space(self, drawn: int) -> None:
        """Nothing could be proposed; a number of random traces were drawn to tell why."""
        logger.warning(
            "%s: the search found no candidate to measure; of %d drawn at random, %s",
            self._task,
            drawn,
            self.drops(),
        )

    def drops(self) -> str:
        """The number of dropped proposals, by what dropped them."""
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
