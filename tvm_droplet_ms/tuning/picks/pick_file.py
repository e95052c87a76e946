# SPDX-License-Identifier: Apache-2.0
"""The file of first picks: a line of JSON for each task. Imports no TVM."""

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
"""Version of a line; lines of another are skipped."""

FILE_NAME = "first_picks.jsonl"

Point = tuple[int, tuple[int, ...]]
"""The index of a design space, and the values of its decisions."""


@dataclass(frozen=True)
class StoredPick:
    """One line of the file.

    - ``key``: identifies the task: its workload, its target and whatever else made the pick.
    - ``trace``: the trace of the best predicted schedule, or of the fastest measured one, as JSON.
    - ``points``: the best predicted points of the task's design spaces, the best first.
    - ``predicted``: the predicted throughput of each, relative to the best of the task; empty where
      no model was asked.
    - ``secs``: the measured seconds of the trace, the fastest of several; None where none was
      measured.
    - ``is_late``: whether it was made in a hurry, without a choice: another run with more time
      makes it anew.
    """

    key: str
    trace: str
    points: tuple[Point, ...]
    predicted: tuple[float, ...]
    secs: float | None = None
    is_late: bool = False


class PickFile:
    """The file of first picks in a work directory.

    ``work_dir``: the directory; created when the first pick is written.
    """

    def __init__(self, work_dir: str | os.PathLike[str]) -> None:
        self.path = Path(work_dir) / FILE_NAME

    def read(self) -> dict[str, StoredPick]:
        """The picks by their keys, the last of a key; faulty lines are skipped.

        A line may be torn where a run was killed. Its pick is made anew, so that nothing is lost.
        """
        return {pick.key: pick for pick in self._lines()}

    def _lines(self) -> Iterator[StoredPick]:
        if not self.path.exists():
            return
        for line in self.path.read_bytes().splitlines():
            try:
                yield _parse(json.loads(line.decode("utf-8")))
            except (ValueError, TypeError, KeyError):
                continue

    def append(self, picks: Sequence[StoredPick]) -> None:
        """Add picks at the end of the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            text = "".join(json.dumps({"format": FORMAT} | asdict(pick)) + "\n" for pick in picks)
            # A torn last line must not swallow the first new one.
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    text = "\n" + text
            file.write(text.encode())


def _parse(line: Any) -> StoredPick:
    """Read a line; ValueError, TypeError or KeyError where it is not as ``append`` writes it."""
    if not isinstance(line, dict) or line["format"] != FORMAT:
        raise ValueError("a line of another format")
    if not isinstance(line["key"], str) or not isinstance(line["trace"], str):
        raise TypeError("its key and its trace are not text")
    points = tuple(
        (_integer(space), tuple(map(_integer, values))) for space, values in line["points"]
    )
    predicted = tuple(float(value) for value in line["predicted"])
    if len(predicted) not in (0, len(points)) or not all(map(math.isfinite, predicted)):
        raise ValueError("its predictions do not match its points")
    secs = line.get("secs")
    if secs is not None and not 0.0 < float(secs) < math.inf:
        raise ValueError("its time is not a positive number")
    return StoredPick(
        line["key"],
        line["trace"],
        points,
        predicted,
        None if secs is None else float(secs),
        line.get("is_late") is True,
    )


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no integer")
    return value
