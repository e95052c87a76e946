# SPDX-License-Identifier: Apache-2.0
"""The trials of a run's directory, in the order of measurement. Imports no TVM."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from ...session.torn_database import RECORDS, WORKLOADS
from .decision_names import decision_names, is_parallel_extent

FAILED_SECS = 1e10
"""The time that TVM stores for a failure (``add_to_database.cc``)."""

_FIRST_FILES = ("settings.json", "command.json", WORKLOADS)
"""Files that a run writes before its first trial: its target, its command, its kernels."""

_POSTPROCESSORS = "EnterPostproc"


class ReportError(ValueError):
    """A report cannot be made; the message says why."""


@dataclass(frozen=True)
class Trial:
    """One measured schedule.

    - ``secs``: its mean time in seconds; infinity for a failure.
    - ``sketch``: the number of its design space, in the order of first appearance.
    - ``decisions``: the name and the value of each sampled decision and of each parallel extent.
    - ``line``: the position of its record in the file.
    """

    secs: float
    sketch: int
    decisions: tuple[tuple[str, str], ...]
    line: int


@dataclass(frozen=True)
class TaskHistory:
    """The trials of one workload on one target.

    ``workload``: the position of the workload in its file. ``trials``: the trials in the order of
    measurement. ``target``: the attributes of the target as JSON, with sorted keys.
    """

    workload: int
    trials: tuple[Trial, ...]
    target: str

    @property
    def best_so_far(self) -> list[float]:
        """The best time after each trial, in seconds; infinity before the first success."""
        return list(accumulate((trial.secs for trial in self.trials), min))

    @property
    def failures(self) -> int:
        """The number of failed trials."""
        return sum(math.isinf(trial.secs) for trial in self.trials)

    @property
    def best(self) -> Trial:
        """The fastest trial."""
        return min(self.trials, key=lambda trial: trial.secs)

    @property
    def last_gain(self) -> int:
        """The number of the last trial that improved the best time, counted from 1."""
        best = self.best_so_far
        return best.index(best[-1]) + 1


def read_history(work_dir: str | os.PathLike[str]) -> list[TaskHistory]:
    """Read the trials of a work directory.

    Returns the tasks in the order of their first record. Records without times are skipped, because
    the machine failed to measure them. Raises ``ReportError`` if there are no records or a line is
    damaged.
    """
    path = Path(work_dir) / RECORDS
    lines = path.read_bytes().splitlines() if path.exists() else []
    trials: dict[tuple[int, str], list[Trial]] = {}
    sketches: dict[str, int] = {}
    for number, line in enumerate(lines):
        try:
            workload, ((insts, decisions), secs, target, *_) = json.loads(line)
            if secs == []:
                continue
            trial = _trial(insts, decisions, secs, sketches, number)
            key = int(workload), json.dumps(dict(target or {}), sort_keys=True)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise damaged_line(path, number, error) from error
        trials.setdefault(key, []).append(trial)
    if not trials:
        raise ReportError(_why_empty(Path(work_dir)))
    return [TaskHistory(workload, tuple(found), on) for (workload, on), found in trials.items()]


def damaged_line(path: Path, number: int, reason: object) -> ReportError:
    """The error for an unreadable line. ``number``: its position, counted from 0."""
    return ReportError(
        f"line {number + 1} of {path} is damaged: {reason}; droplet-ms doctor says more"
    )


def target_names(tasks: Sequence[TaskHistory]) -> dict[str, str]:
    """Names of targets: the kind and the attributes not shared by all; empty if there is one."""
    targets = {task.target: dict(json.loads(task.target)) for task in tasks}
    parts = {
        text: {f"{name} {_shown(value)}" for name, value in target.items() if name != "kind"}
        for text, target in targets.items()
    }
    common = set.intersection(*parts.values())
    return {
        text: " ".join([str(target.get("kind", "no target")), *sorted(parts[text] - common)])
        if len(targets) > 1
        else ""
        for text, target in targets.items()
    }


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _why_empty(directory: Path) -> str:
    """The reason why a directory has no records, in one sentence."""
    if not directory.is_dir():
        return f"there is no directory {os.fspath(directory)!r}: expected that of a run"
    if any((directory / name).exists() for name in _FIRST_FILES):
        return (
            f"the run of {os.fspath(directory)!r} measured no schedule, so that there is nothing "
            "to report: run it with more minutes or trials"
        )
    return f"{os.fspath(directory)!r} has no records: expected the directory of a run"


def _trial(
    insts: Sequence[Any],
    decisions: Sequence[Any],
    secs: Sequence[float] | None,
    sketches: dict[str, int],
    line: int,
) -> Trial:
    kinds = [str(inst[0]) for inst in insts]
    if _POSTPROCESSORS in kinds:
        kinds = kinds[: kinds.index(_POSTPROCESSORS)]
    # Two design spaces with the same kinds of instructions may differ in their blocks and loops.
    shape = [_without_extent(inst) for inst in insts[: len(kinds)]]
    sketch = sketches.setdefault(json.dumps(shape), len(sketches))
    times = [float(sec) for sec in secs or ()]
    valid = bool(times) and all(0.0 < sec < FAILED_SECS for sec in times)
    mean = sum(times) / len(times) if valid else math.inf
    names = decision_names(insts[: len(kinds)])
    named = tuple(
        (names.get(int(position), f"{kinds[int(position)]} {int(position)}"), json.dumps(value))
        for position, value in decisions
        if int(position) < len(kinds)
    )
    extents = tuple(
        (names[place], json.dumps(insts[place][1][1]))
        for place in range(len(kinds))
        if is_parallel_extent(insts[place])
    )
    return Trial(mean, sketch, named + extents, line)


def _without_extent(inst: Sequence[Any]) -> list[Any]:
    """An instruction without the constant of a parallel annotation, which a search may change."""
    kind, inputs, attributes, outputs = inst
    fixed = inputs[:1] if is_parallel_extent(inst) else inputs
    return [kind, fixed, attributes, outputs]
