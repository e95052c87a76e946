# SPDX-License-Identifier: Apache-2.0
"""Follows a search through its log: shows it on the console and summarizes each phase."""

import logging
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from tvm.s_tir import Trace

from ..search_strategy.log import SearchProgress
from ..search_strategy.logger import logger
from ..search_strategy.published.search import Phase

_TVM_LOGGER = "tvm.s_tir.meta_schedule"


class ProgressFormatter(logging.Formatter):
    """Formats each log record of the search as one plain line, for a terminal or a file.

    A line has the seconds since the start, the rate of the task's best schedule if the record has
    it, and the message.

    Parameters
    ----------
    start : float
        Start of the run, as of ``time.time()``.
    flop : Mapping[str, float]
        Floating point operations of one call, by task. A task that is missing has no rate.
    """

    def __init__(self, start: float, flop: Mapping[str, float]) -> None:
        super().__init__()
        self._start = start
        self._flop = flop

    def format(self, record: logging.LogRecord) -> str:
        """See ``logging.Formatter``."""
        progress: SearchProgress | None = getattr(record, "progress", None)
        rate = ""
        if progress is not None and progress.task in self._flop:
            known = math.isfinite(progress.best_secs)
            gflops = self._flop[progress.task] / progress.best_secs / 1e9
            rate = f"{gflops:.1f} GFLOP/s" if known else "- GFLOP/s"
        level = "" if record.levelno < logging.WARNING else f"{record.levelname}: "
        message = " ".join(record.getMessage().split())
        return f"[{record.created - self._start:6.1f} s] {rate:>14}  {level}{message}"


@dataclass
class PhaseSummary:
    """The phases of one task's search.

    Attributes
    ----------
    trials : Counter[Phase]
        Measured trials by phase.
    explored : Trace | None
        Best trace when the first descent began. None if there was no descent yet.
    """

    trials: Counter[Phase] = field(default_factory=Counter)
    explored: Trace | None = None


class PhaseRecorder(logging.Handler):
    """Records the phases of each task.

    Attributes
    ----------
    tasks : dict[str, PhaseSummary]
        Summaries by task.
    last_warning : str
        Last message of level WARNING or above. Empty if there was none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tasks: defaultdict[str, PhaseSummary] = defaultdict(PhaseSummary)
        self.last_warning = ""

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        if record.levelno >= logging.WARNING:
            self.last_warning = record.getMessage()
        progress: SearchProgress | None = getattr(record, "progress", None)
        if progress is None:
            return
        summary = self.tasks[progress.task]
        summary.trials[progress.phase] += progress.trials - summary.trials.total()
        descends = progress.event == "phase" and progress.phase == "descend"
        if descends and summary.explored is None:
            summary.explored = progress.best_trace


@contextmanager
def show_progress(
    flop: Mapping[str, float], *, start: float | None = None, stream: TextIO | None = None
) -> Iterator[PhaseRecorder]:
    """Show the progress of all searches on the console inside the context.

    Parameters
    ----------
    flop : Mapping[str, float]
        Floating point operations of one call, by task.
    start : float | None
        Start of the run, as of ``time.time()``. None for now.
    stream : TextIO | None
        Where to write. None for standard output.

    Yields
    ------
    recorder : PhaseRecorder
        Filled while the searches run.
    """
    console = logging.StreamHandler(stream or sys.stdout)
    console.setFormatter(ProgressFormatter(time.time() if start is None else start, flop))
    recorder = PhaseRecorder()
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in (console, recorder):
        logger.addHandler(handler)
    try:
        yield recorder
    finally:
        for handler in (console, recorder):
            logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@contextmanager
def quiet_tvm() -> Iterator[None]:
    """Keep MetaSchedule's next run from printing its tables and logs to the console.

    They still go to the files in ``<work_dir>/logs``, and warnings still go to the console. A run
    gives its console handler the level of TVM's logger, then sets the logger to ``DEBUG``
    (``create_loggers`` in ``meta_schedule/logging.py``). So enter this context for each run. On
    exit, the logger gets its previous level back.
    """
    logger_of_tvm = logging.getLogger(_TVM_LOGGER)
    level = logger_of_tvm.level
    logger_of_tvm.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger_of_tvm.setLevel(level)
