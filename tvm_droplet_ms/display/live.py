# SPDX-License-Identifier: Apache-2.0
"""A view on the terminal that follows a run. Imports no TVM."""

import math
from collections.abc import Collection

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .model_state import ModelState
from .state import RunState, TaskState, failed, shown_us

MOST_TASKS = 12
"""The maximum number of tasks in the table."""

BAR_WIDTH = 10
"""The width of the time's bar, in characters."""


class LiveDisplay:
    """Shows the model, if there is one, and one row per task, redrawn after each batch.

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
        self._live.update(view_of(run, self._last), refresh=True)

    def close(self) -> None:
        """Stop drawing, and release the terminal."""
        self._live.stop()


def view_of(run: RunState, shown: Collection[TaskState]) -> RenderableType:
    """A model and some of its tasks; a table of the tasks alone if there is no model."""
    model, table = run.estimated_model, table_of(run, shown)
    return table if model is None else Group(*_lines_of(model, run.clock()), table)


def _lines_of(model: ModelState, now: float) -> tuple[RenderableType, ...]:
    """The latency of a model, and the time of its run with a bar. ``now``: of the run's clock."""
    bar = ProgressBar(model.deadline - model.began, now - model.began, width=BAR_WIDTH)
    line = Table.grid(padding=(0, 1))
    line.add_row(bar, _cut(f"{model.shown_time(now)}, {model.shown_forecast()}"))
    return _cut(model.shown_latency(" than the first executable")), line


def _cut(text: str) -> Text:
    """Text that is cut off where it would be wrapped."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def table_of(run: RunState, shown: Collection[TaskState]) -> Table:
    """Some tasks of a run as a table. ``shown``: the tasks to show."""
    left = "" if math.isnan(run.secs_left) else f", about {run.secs_left:.0f} s left"
    trials = sum(task.done for task in run.tasks)
    secs = f", {run.secs:.0f} s{left}" if run.estimated_model is None else ""
    caption = f"{trials} trials of {len(run.tasks)} task(s){secs}"
    table = Table(caption=caption, caption_justify="left")
    phases = [task.phase for task in shown]
    for column in ("task", "phase") if any(phases) else ("task",):
        table.add_column(column)
    for column in ("trials", "best us", "since gain"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("failed", justify="right")
    for task in (task for task in run.tasks if any(task is each for each in shown)):
        table.add_row(
            _cut(task.name),
            *((_cut(task.phase),) if any(phases) else ()),
            f"{task.done}/{task.trials}" if task.trials else str(task.done),
            "-" if math.isinf(task.best_secs) else shown_us(task.best_secs),
            str(task.since_gain),
            _cut(failed(task).removesuffix(" failed")),
        )
    return table
