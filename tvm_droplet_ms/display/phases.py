# SPDX-License-Identifier: Apache-2.0
"""The logs of a run: phases that ``DropletStrategy`` reports, and a console without TVM's."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ..search_strategy.log import SearchProgress
from ..search_strategy.logger import logger
from .state import TaskState

_TVM_LOGGER = "tvm.s_tir.meta_schedule"


class _PhaseHandler(logging.Handler):
    def __init__(self, task: TaskState, shown_from: int) -> None:
        super().__init__()
        self._task = task
        self._shown_from = shown_from
        self._propagates = logger.propagate

    def emit(self, record: logging.LogRecord) -> None:
        progress: SearchProgress | None = getattr(record, "progress", None)
        if progress is not None:
            self._task.phase = progress.phase
            self._task.forecast = str(progress.forecast or "")
        if self._propagates and record.levelno >= self._shown_from and logger.parent is not None:
            logger.parent.callHandlers(record)


@contextmanager
def followed_phases(task: TaskState) -> Iterator[None]:
    """Inside the context, copy the phase and the forecast that the search logs into a task.

    Log records are shown at the same levels as before.

    ``task``: the only task that is tuned.
    """
    level, propagate = logger.level, logger.propagate
    handler = _PhaseHandler(task, logger.getEffectiveLevel())
    logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
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
