# SPDX-License-Identifier: Apache-2.0
"""The steps of a long command on the console. Imports no TVM."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from .displays import EVERY_SECS, on_standard_error

Steps = Callable[[str, int, int], None]
"""Called with the name of a step, the number of items done, and their total."""


@contextmanager
def console_steps(name: str, every_secs: float = EVERY_SECS) -> Iterator[Steps]:
    """Show each step and its remaining time on standard error: bars on a terminal, else lines.

    ``name``: the subject of the command. ``every_secs``: minimum seconds between two lines if
    standard error is not a terminal.
    """
    if not sys.stderr.isatty():
        yield _lines(name, every_secs)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # This thread draws the bars, because a separate thread would be copied into forked processes.
    bars = Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), auto_refresh=False
    )
    with bars:
        yield _steps_of(bars, name)


def _steps_of(bars: Progress, name: str) -> Steps:
    tasks: dict[str, TaskID] = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(f"{name}: {what}", total=total)
        bars.update(tasks[what], completed=done)
        bars.refresh()

    return show


def _lines(name: str, every_secs: float) -> Steps:
    started: dict[str, float] = {}
    last = -every_secs

    def show(what: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        first = started.setdefault(what, now)
        if done < total and now - last < every_secs:
            return
        last = now
        left = (now - first) / done * (total - done) if done else 0.0
        on_standard_error(f"{name}: {what} {done}/{total}, {left:.0f} s left")

    return show
