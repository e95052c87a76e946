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
"""The file of a work directory that gets a line for each batch."""

EVERY_SECS = 5.0
"""The least seconds between two lines."""


class Display(Protocol):
    """Shows how a run goes."""

    def batch(self, run: RunState, task: TaskState) -> None:
        """A batch of a task was measured."""

    def close(self) -> None:
        """The run has ended."""


class LineDisplay:
    """Shows a line at most every ``EVERY_SECS``, and at the end what was not shown.

    Parameters
    ----------
    show : Callable[[str], None]
        Told each line.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._last = ""
        self._next = 0.0

    def batch(self, run: RunState, task: TaskState) -> None:
        """A batch of a task was measured."""
        self._last = sentence(run, task)
        if run.secs >= self._next:
            self._flush()
            self._next = run.secs + EVERY_SECS

    def close(self) -> None:
        """The run has ended."""
        self._flush()

    def _flush(self) -> None:
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
        """A batch of a task was measured."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run.event("batch", task)) + "\n")

    def close(self) -> None:
        """The run has ended; each event is written already."""


class SeveralDisplays:
    """Several displays as one.

    Parameters
    ----------
    displays : Sequence[Display]
        The displays.
    """

    def __init__(self, displays: Sequence[Display]) -> None:
        self._displays = list(displays)

    def batch(self, run: RunState, task: TaskState) -> None:
        """A batch of a task was measured."""
        for display in self._displays:
            display.batch(run, task)

    def close(self) -> None:
        """The run has ended."""
        for display in self._displays:
            display.close()


Progress = Callable[[str], None] | Literal["auto"] | None
"""The progress of a run: "auto" for ``console_display``; what is told lines; None for silence."""


def message(progress: Progress) -> Callable[[str], None]:
    """A function that is told a single line."""
    if progress == "auto":
        return on_standard_error
    return progress or (lambda _line: None)


def run_display(work_dir: str | os.PathLike[str] | None, progress: Progress) -> Display:
    """The display of a run, and the file of its events.

    Parameters
    ----------
    work_dir : str | os.PathLike[str] | None
        The directory of the file ``progress.jsonl``; None for no file.
    progress : Progress
        What is shown.
    """
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
    """A table that stays in place where the standard error is a terminal, lines elsewhere."""
    if sys.stderr.isatty():
        from .live import LiveDisplay

        return LiveDisplay()
    return LineDisplay(on_standard_error)
