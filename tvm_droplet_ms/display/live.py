# SPDX-License-Identifier: Apache-2.0
"""A table on the terminal that follows a run. Imports no TVM."""

import math
from collections.abc import Collection

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .state import RunState, TaskState, failed, shown_us

MOST_TASKS = 12
"""The most tasks that are shown."""


class LiveDisplay:
    """Shows a row for each task, drawn anew after each batch.

    Of many tasks it shows those that were measured last.

    It is drawn by the thread that tunes: a thread of its own would be copied into the processes
    that builders and runners fork. ``console``: where to draw; None for the standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        # What a program prints is not this display's. Warnings of the log go above the table, which
        # they would break.
        self._live = Live(
            console=console or Console(stderr=True), auto_refresh=False, redirect_stdout=False
        )
        self._last: list[TaskState] = []

    def batch(self, run: RunState, task: TaskState) -> None:
        """A batch of a task was measured."""
        if not self._live.is_started:
            self._live.start()
        self._last = [task, *(each for each in self._last if each is not task)][:MOST_TASKS]
        self._live.update(table_of(run, self._last), refresh=True)

    def close(self) -> None:
        """The run has ended."""
        self._live.stop()


def table_of(run: RunState, shown: Collection[TaskState]) -> Table:
    """Some tasks of a run as a table. ``shown``: those to show."""
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
