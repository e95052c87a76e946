# SPDX-License-Identifier: Apache-2.0
"""Follows the phases that ``DropletStrategy`` logs, without showing its log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ..search_strategy.log import SearchProgress
from ..search_strategy.logger import logger
from .state import TaskState


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
