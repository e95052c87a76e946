# SPDX-License-Identifier: Apache-2.0
"""First picks, the schedules that tasks have before they are measured, and their file.

Predictions are never stored as measurements: they have their own file, with one line of JSON per
task.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tvm_ffi import structural_hash

import tvm
from tvm.ir import IRModule, load_json, save_json
from tvm.s_tir import Schedule, Trace
from tvm.target import Target

from ...cost_model.training_data import target_text
from ...design_space.matrix_tiles.tile_intrinsics import register_named
from ...search_strategy.logger import logger
from ...search_strategy.published.decisions import SpacePoint
from ...session.errors import last_line

NAMED = 3
"""The maximum number of tasks that a note names."""

FORMAT = 2
"""The format version of a line; lines of other versions are skipped."""

FILE_NAME = "first_picks.jsonl"


@dataclass(frozen=True)
class StoredPick:
    """One line of the file: a ``FirstPick`` with the key of its task.

    ``is_late``: whether the pick was made in a hurry without alternatives. A run with more time
    makes it anew.
    """

    key: str
    trace: str
    points: tuple[SpacePoint, ...]
    predicted: tuple[float, ...]
    secs: float | None = None
    is_late: bool = False


@dataclass(frozen=True)
class FirstPick:
    """The schedule that a task has before it is measured.

    - ``trace``: the trace of the best predicted or the fastest measured schedule, including
      postprocessors; empty if the unscheduled kernel was the fastest.
    - ``points``: the best predicted points of the design spaces, the best first.
    - ``predicted``: the predicted throughput of each point; empty without a cost model.
    - ``secs``: the measured seconds of the trace; None if it was not measured.
    - ``replaced_secs``: the seconds, measured with it, of the pick that was predicted before;
      infinity if they could not be measured, None if this run measured nothing.
    """

    mod: IRModule
    trace: Trace
    points: tuple[SpacePoint, ...]
    predicted: tuple[float, ...]
    secs: float | None = None
    replaced_secs: float | None = None

    def to_line(self, key: str) -> StoredPick:
        """Return the line of the file that ``restore`` reads."""
        trace = save_json(self.trace.as_json())
        return StoredPick(key, trace, self.points, self.predicted, self.secs)


@dataclass
class FirstPicks:
    """The picks of a model's tasks. ``unscheduled``: reasons of tasks without a pick, by name."""

    unscheduled: dict[str, str] = field(default_factory=dict)
    _picks: dict[str, FirstPick] = field(default_factory=dict)

    def keep(self, pick: FirstPick, target: Target) -> None:
        """Keep the pick of a workload."""
        self._picks[task_key(pick.mod, target)] = pick

    def find(self, mod: IRModule, target: Target) -> FirstPick | None:
        """Return the pick of a workload; None if there is none."""
        return self._picks.get(task_key(mod, target))

    def unscheduled_notes(self) -> list[str]:
        """Return one sentence for each reason, with the names of the tasks without a pick."""
        names: dict[str, list[str]] = {}
        for name, reason in self.unscheduled.items():
            names.setdefault(reason, []).append(name)
        notes = []
        for reason, found in names.items():
            others = len(found) - NAMED
            more = f" and {others} other{'s' * (others > 1)}" if others > 0 else ""
            verb = "has no schedule and stays as it is"
            if len(found) > 1:
                verb = "have no schedule and stay as they are"
            notes.append(f"{', '.join(found[:NAMED])}{more} {verb}: {reason}")
        return notes

    def __iter__(self) -> Iterator[FirstPick]:
        """Iterate over the picks in insertion order."""
        return iter(self._picks.values())

    def __len__(self) -> int:
        """Return the number of tasks with a pick."""
        return len(self._picks)


def task_key(mod: IRModule, target: Target) -> str:
    """Return the key of a task in the file of picks: TVM's version, workload hash and target."""
    return f"{tvm.__version__} {structural_hash(mod)} {target_text(target)}"


def restore(mod: IRModule, stored: StoredPick | None, has_model: bool) -> FirstPick | None:
    """Restore a stored pick; return None if it must be made anew.

    A pick that was made without a cost model is made anew if there is one now.
    """
    if stored is None or (has_model and len(stored.points) > 1 and not stored.predicted):
        return None
    # A trace of another version of TVM or this package may raise an error of any schedule
    # primitive.
    try:
        trace = replayed(mod, stored.trace)
    except Exception as error:
        logger.info("a first pick no longer replays and is made anew: %s", last_line(error))
        return None
    return FirstPick(mod, trace, stored.points, stored.predicted, stored.secs)


def replayed(mod: IRModule, text: str) -> Trace:
    """Return the trace of a workload from JSON. Raises TVM's error if it does not replay."""
    schedule = Schedule(mod, debug_mask="none", error_render_level="none")
    register_named(text)
    Trace.apply_json_to_schedule(load_json(text), schedule)
    return schedule.trace


class PickFile:
    """The file of first picks in a work directory, created with the first pick."""

    def __init__(self, work_dir: str | os.PathLike[str]) -> None:
        self.path = Path(work_dir) / FILE_NAME

    def read(self) -> dict[str, StoredPick]:
        """Read the last pick of each key. Malformed lines are skipped."""
        picks = {}
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            with suppress(ValueError, TypeError, KeyError):
                pick = _parse(json.loads(line.decode("utf-8")))
                picks[pick.key] = pick
        return picks

    def append(self, picks: Sequence[StoredPick]) -> None:
        """Append picks to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            text = "".join(json.dumps({"format": FORMAT} | asdict(pick)) + "\n" for pick in picks)
            # An incomplete last line must not merge with the first new one.
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    text = "\n" + text
            file.write(text.encode())


def _parse(line: Any) -> StoredPick:
    """Parse a line. Raises ValueError, TypeError or KeyError unless it is as ``append`` writes."""
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
