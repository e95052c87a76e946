# SPDX-License-Identifier: Apache-2.0
"""Displays of a run, and of the steps of a command: lines, JSON lines, none. Imports no TVM."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..search_strategy.logger import logger
from .state import RunState, TaskState, sentence

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

EVENTS = "progress.jsonl"
"""The name of the work directory's file of events: one JSON line per batch, and of a model its
latencies."""

EVERY_SECS = 5.0
"""The minimum seconds between two lines."""


class Display(Protocol):
    """Shows the progress of a run."""

    def batch(self, run: RunState, task: TaskState) -> None:
        """Show the state of a run after a batch of a task."""

    def close(self) -> None:
        """End the display with the run."""


class LineDisplay:
    """Shows at most one line every ``EVERY_SECS``, and the last pending line at the end.

    ``show``: called with each line.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._last, self._next = show, "", 0.0

    def batch(self, run: RunState, task: TaskState) -> None:
        """Show the task's state, or keep it for later."""
        self._last = sentence(run, task)
        if run.secs >= self._next:
            self.close()
            self._next = run.secs + EVERY_SECS

    def close(self) -> None:
        """Show the pending line."""
        if self._last:
            self._show(self._last)
        self._last = ""


class JsonLinesDisplay:
    """Appends an event for each batch to a file; see ``RunState.event``.

    Parameters
    ----------
    path : str | os.PathLike[str]
        The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def batch(self, run: RunState, task: TaskState) -> None:
        """Append the event of a batch."""
        append_event(self._path, run.event("batch", task))

    def close(self) -> None:
        """Do nothing: all events are already written."""


def append_event(path: str | os.PathLike[str], event: Mapping[str, Any]) -> None:
    """Append an event to a file, as a line of JSON."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def tell_event(work_dir: str | os.PathLike[str], event: Mapping[str, Any]) -> None:
    """Append an event to a work directory's ``EVENTS``; a full disk is a warning."""
    try:
        append_event(Path(work_dir) / EVENTS, event)
    except OSError as error:
        logger.warning("an event is not in the work directory: %s", error)


class SeveralDisplays:
    """Several displays as one."""

    def __init__(self, displays: Sequence[Display]) -> None:
        self._displays = list(displays)

    def batch(self, run: RunState, task: TaskState) -> None:
        """Pass a batch to each display."""
        for display in self._displays:
            display.batch(run, task)

    def close(self) -> None:
        """Close each display."""
        for display in self._displays:
            display.close()


Progress = Callable[[str], None] | Literal["auto"] | None
"""A progress option: "auto" for ``console_display``, a function to call with each line, or None for
no progress."""


def message(progress: Progress) -> Callable[[str], None]:
    """A function that shows a single line according to a progress option."""
    if progress == "auto":
        return on_standard_error
    return progress or (lambda _line: None)


def run_display(work_dir: str | os.PathLike[str] | None, progress: Progress) -> Display:
    """The display of a run, which also writes the events to ``progress.jsonl`` in `work_dir`."""
    shown: list[Display] = []
    if work_dir is not None:
        shown.append(JsonLinesDisplay(Path(work_dir) / EVENTS))
    if progress == "auto":
        shown.append(console_display())
    elif progress is not None:
        shown.append(LineDisplay(progress))
    return SeveralDisplays(shown)


def on_standard_error(line: str) -> None:
    """Print a line to the standard error."""
    print(line, file=sys.stderr, flush=True)


def console_display() -> Display:
    """A table that updates in place if standard error is a terminal; otherwise lines."""
    if sys.stderr.isatty():
        from .live import LiveDisplay

        return LiveDisplay()
    return LineDisplay(on_standard_error)


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
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # This thread draws the bars, because a separate thread would be copied into forked processes.
    bars = Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), auto_refresh=False)
    with bars:
        yield _steps_of(bars, name)


def _steps_of(bars: "Bars", name: str) -> Steps:
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
