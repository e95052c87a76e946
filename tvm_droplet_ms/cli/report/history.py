# SPDX-License-Identifier: Apache-2.0
"""The trials of a run's directory, their decisions, and its events. Imports no TVM."""

import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from ...display.displays import EVENTS
from ...session.records import FAILED_SECS, RECORDS, WORKLOADS, parse_line, read_lines

_FIRST_FILES = ("settings.json", "command.json", WORKLOADS)
"""Files that a run writes before its first trial: its target, its command, its kernels."""

_POSTPROCESSORS = "EnterPostproc"

_PARALLEL = "meta_schedule.parallel"
_USES = {
    "meta_schedule.unroll_explicit": "unrolling",
    "meta_schedule.unroll_implicit": "unrolling",
    "meta_schedule.vectorize": "vectorization",
    _PARALLEL: "parallel loops",
}


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


def read_history(
    work_dir: str | os.PathLike[str], *, may_be_empty: bool = False
) -> list[TaskHistory]:
    """Read the trials of a work directory.

    Returns the tasks in the order of their first record. Records without times are skipped, because
    the machine failed to measure them. Raises ``ReportError`` if a line is damaged, or if there are
    no records and there must be.
    """
    path = Path(work_dir) / RECORDS
    trials: dict[tuple[int, str], list[Trial]] = {}
    sketches: dict[str, int] = {}
    for number, line in enumerate(read_lines(path)):
        try:
            workload, ((insts, decisions), secs, target, *_) = parse_line(line)
            if secs == []:
                continue
            trial = _trial(insts, decisions, secs, sketches, number)
            key = int(workload), json.dumps(dict(target or {}), sort_keys=True)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise damaged_line(path, number, error) from error
        trials.setdefault(key, []).append(trial)
    if not trials and not may_be_empty:
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
    common = set.intersection(*parts.values()) if parts else set()
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


def is_parallel_extent(instruction: Sequence[Any]) -> bool:
    """True if an instruction is a parallel annotation with a constant, which searches change."""
    kind, inputs, attributes, _ = instruction
    is_parallel = kind == "Annotate" and list(attributes[:1]) == [_PARALLEL]
    return is_parallel and isinstance(inputs[1], int)


def decision_names(instructions: Sequence[Any]) -> dict[int, str]:
    """Name the decisions of a trace.

    A trace numbers its variables: ``["SamplePerfectTile", ["l3"], [4, 64], ["v10", ...]]`` tiles
    the loop ``l3``, which an earlier instruction defines.

    ``instructions``: the instructions as stored in a record: kind, inputs, attributes, outputs.
    Returns distinct names, such as "tile of matmul, loop 2", by the index of the instruction. The
    constant of a parallel annotation counts as a decision.
    """
    variables: dict[str, str] = {}
    names: dict[int, str] = {}
    for place, (kind, inputs, attributes, outputs) in enumerate(instructions):
        known = [variables.get(str(each), "") for each in inputs]
        first = next(filter(None, known), "")
        if kind == "GetSBlock":
            variables |= _block(attributes, outputs)
        elif kind == "GetLoops":
            for number, loop in enumerate(outputs):
                variables[str(loop)] = f"{first or 'a block'}, loop {number}"
        elif kind == "Fuse":
            for loop in outputs:
                variables[str(loop)] = f"{first.partition(',')[0] or 'a block'}, fused loops"
        elif kind in ("SamplePerfectTile", "SamplePartitionedTile"):
            names[place] = f"tile of {first or 'a loop'}"
        elif kind == "SampleComputeLocation":
            names[place] = f"place of {first or 'a block'}"
        elif kind.startswith("Sample"):
            names[place] = _use(instructions, outputs)
        elif kind == "Annotate":
            if is_parallel_extent(instructions[place]):
                names[place] = _USES[_PARALLEL]
        else:
            # Blocks derived from a block, such as a cache or part of a reduction, take its name.
            for output in outputs:
                variables[str(output)] = first
    counts = Counter(names.values())
    return {
        place: name if counts[name] == 1 else f"{name} (instruction {place})"
        for place, name in names.items()
    }


def _block(attributes: Sequence[Any], outputs: Sequence[Any]) -> dict[str, str]:
    return {str(output): str(attributes[0]) for output in outputs if attributes}


def _use(instructions: Sequence[Any], outputs: Sequence[Any]) -> str:
    """The purpose of a sampled value."""
    values = set(map(str, outputs))
    for kind, inputs, attributes, _ in instructions:
        if values.isdisjoint(map(str, inputs)):
            continue
        if kind == "Annotate":
            key = str(attributes[0])
            return _USES.get(key, key.rpartition(".")[2].replace("_", " "))
        return "length of a loop" if kind == "Split" else f"choice for {kind}"
    return "choice"


@dataclass
class RunEvents:
    """The combined events of a directory's runs.

    ``messages``: the message of the first failure of each kind. ``descends_after``: the numbers of
    trials after which a search changed from exploring to descending. ``secs``: the total seconds of
    the runs, each until its last batch.
    """

    failures: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    descends_after: list[int] = field(default_factory=list)
    secs: float = 0.0


def read_events(work_dir: str | os.PathLike[str]) -> RunEvents | None:
    """Read the events of a directory; None if it has no event file.

    Invalid lines, such as a torn line, are skipped.
    """
    path = Path(work_dir) / EVENTS
    if not path.exists():
        return None
    found, phase = RunEvents(), ""
    last: dict[float, tuple[Counter[str], float]] = {}
    before = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
            if event.get("event", "batch") != "batch":
                continue
            started, secs, trials = event["started"], float(event["secs"]), int(event["trials"])
            failures, messages = Counter(event["failures"]), dict(event["messages"])
        except (ValueError, TypeError, LookupError, AttributeError):
            continue
        last[started] = failures, secs
        found.messages = messages | found.messages
        if event.get("phase") == "descend" and phase == "explore":
            found.descends_after.append(before)
        phase, before = event.get("phase") or "", trials
    for failures, secs in last.values():
        found.failures.update(failures)
        found.secs += secs
    return found
