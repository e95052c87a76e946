# SPDX-License-Identifier: Apache-2.0
"""A table on the terminal that follows a run. Imports no TVM."""

import math
from collections.abc import Collection

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .state import RunState, TaskState, failed, shown_us

MOST_TASKS = 12
"""The maximum number of tasks in the table."""


class LiveDisplay:
    """Shows one row per task, redrawn after each batch.

    If there are more than ``MOST_TASKS`` tasks, it shows the most recently measured ones.

    The tuning thread draws the table, because a separate thread would be copied into the processes
    that builders and runners fork. ``console``: where to draw; None for standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        # Standard output belongs to the program. Standard error is redirected, so that log warnings
        # appear above the table and do not break it.
        self._live = Live(
            console=console or Console(stderr=True), auto_refresh=False, redirect_stdout=False
        )
        self._last: list[TaskState] = []

    def batch(self, run: RunState, task: TaskState) -> None:
        """Redraw the table after a batch of a task."""
        if not self._live.is_started:
            self._live.start()
        self._last = [task, *(each for each in self._last if each is not task)][:MOST_TASKS]
        self._live.update(table_of(run, self._last), refresh=True)

    def close(self) -> None:
        """Stop drawing, and release the terminal."""
        self._live.stop()


def table_of(run: RunState, shown: Collection[TaskState]) -> Table:
    """Some tasks of a run as a table. ``shown``: the tasks to show."""
    left = "" if math.isnan(run.secs_left) else f", about {run.secs_left:.0f} s left"
    trials = sum(task.done for task in run.tasks)
    caption = f"{trials} trials of {len(run.tasks)} task(s), {run.secs:.0f} s{left}"
    table = Table(caption=caption, caption_justify="left")
    for column in ("task", "phase"):
        table.add_column(column)
    for column in ("trials", "best us", "since gain", "failed"):
        table.add_column(column, justify="right")
    for task in (task for task in run.tasks if any(task is each for each in shown)):
        table.add_row(
            task.name,
            task.phase,
            f"{task.done}/{task.trials}" if task.trials else str(task.done),
            "-" if math.isinf(task.best_secs) else shown_us(task.best_secs),
            str(task.since_gain),
            failed(task).removesuffix(" failed"),
        )
    return table
