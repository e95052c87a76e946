# SPDX-License-Identifier: Apache-2.0
"""Displays of a run: lines, JSON lines, none. Imports no TVM."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from .state import RunState, TaskState, sentence

EVENTS = "progress.jsonl"
"""The name of the work directory's file with one JSON line per batch."""

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
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run.event("batch", task)) + "\n")

    def close(self) -> None:
        """Do nothing: all events are already written."""


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
        from .terminal import LiveDisplay

        return LiveDisplay()
    return LineDisplay(on_standard_error)
