# SPDX-License-Identifier: Apache-2.0
"""The measurements of a run, task by task, for its displays. Imports no TVM."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Failed = tuple[str, str]
"""The kind of a failure, and its message."""

MESSAGE_LENGTH = 200
"""The most letters of a message that are kept."""


@dataclass
class TaskState:
    """A task.

    Parameters
    ----------
    name : str
        Its name.
    trials : int
        Trials to reach, those of earlier runs included; 0 where that is not known.
    known : int
        Trials of earlier runs.
    best_secs : float
        The best mean time so far in seconds; infinity before there is one.
    key : int | None
        The structural hash of its workload, where its name is not enough: kernels of two graphs
        may have the same. None where it is.

    Attributes
    ----------
    known_secs : float
        The best time of earlier runs in seconds; infinity where there is none.
    done : int
        Trials, those of earlier runs included.
    since_gain : int
        Trials of this run since the best.
    failures : Counter[str]
        Failed trials of this run by kind.
    messages : dict[str, str]
        What the first failure of each kind said.
    phase : str
        The phase of the search, where the strategy tells it.
    forecast : str
        What further trials are expected to gain, where the strategy tells it.
    """

    name: str
    trials: int = 0
    known: int = 0
    best_secs: float = math.inf
    key: int | None = None
    known_secs: float = field(init=False)
    done: int = field(default=0, init=False)
    since_gain: int = field(default=0, init=False)
    failures: Counter[str] = field(default_factory=Counter, init=False)
    messages: dict[str, str] = field(default_factory=dict, init=False)
    phase: str = field(default="", init=False)
    forecast: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.done, self.known_secs = self.known, self.best_secs

    def tell(self, times: Sequence[float | None], failures: Sequence[Failed] = ()) -> None:
        """Take a batch.

        Parameters
        ----------
        times : Sequence[float | None]
            The mean time of each trial in seconds; None for a failure.
        failures : Sequence[tuple[str, str]]
            The kind of each failure, and its message.
        """
        self.done += len(times)
        for kind, message in failures:
            self.failures[kind] += 1
            self.messages.setdefault(kind, shortened(message))
        for secs in times:
            self.since_gain += 1
            if secs is not None and secs < self.best_secs:
                self.best_secs, self.since_gain = secs, 0


@dataclass
class RunState:
    """The tasks of a run.

    Parameters
    ----------
    tasks : list[TaskState]
        The tasks.
    clock : Callable[[], float]
        Counts seconds.
    started : float
        When the run began, in seconds since the epoch.
    """

    tasks: list[TaskState] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    started: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self._begun = self.clock()

    @property
    def secs(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self._begun

    @property
    def secs_left(self) -> float:
        """Seconds to the last trial at the speed so far; NaN where that is not known."""
        done = sum(task.done - task.known for task in self.tasks)
        left = [max(0, task.trials - task.done) for task in self.tasks]
        if not done or not all(task.trials for task in self.tasks):
            return math.nan
        return self.secs / done * sum(left)

    def event(self, name: str, task: TaskState) -> dict[str, Any]:
        """An event of a task in the types of JSON; what is not known is None."""
        return {
            "event": name,
            "started": round(self.started, 3),
            "secs": round(self.secs, 3),
            "task": task.name,
            "phase": task.phase or None,
            "trials": task.done,
            "of": task.trials or None,
            "best_us": 1e6 * task.best_secs if math.isfinite(task.best_secs) else None,
            "since_gain": task.since_gain,
            "failures": dict(task.failures),
            "messages": dict(task.messages),
            "secs_left": None if math.isnan(self.secs_left) else round(self.secs_left, 1),
        }


def shortened(message: str) -> str:
    """An error message in one line: its first, or that of a traceback which names the error."""
    lines = [line.rstrip() for line in message.splitlines() if line.strip()] or [""]
    text = lines[0].strip()
    if "Traceback" in text:
        frames = [number for number, line in enumerate(lines) if line.startswith("  File ")]
        # What follows the last frame begins with the error; its message may have several lines.
        after = lines[frames[-1] + 1 :] if frames else lines[-1:]
        raised = next((line for line in after if not line.startswith(" ")), lines[-1])
        text = text.partition("Traceback")[0] + raised.strip()
    return text[:MESSAGE_LENGTH]


def shown_us(secs: float) -> str:
    """Seconds as microseconds in four digits, and never as a power of ten."""
    us = 1e6 * secs
    return f"{us:.4g}" if us < 1e4 else f"{us:.0f}"


def sentence(run: RunState, task: TaskState) -> str:
    """The state of a task in one line."""
    best = "none yet" if math.isinf(task.best_secs) else f"{shown_us(task.best_secs)} us"
    trials = f"{task.done} of {task.trials}" if task.trials else f"{task.done}"
    parts = [
        f"{trials} trials",
        f"best {best}",
        f"{task.since_gain} since the last gain",
        failed(task),
        f"{run.secs:.0f} s",
    ]
    if task.phase:
        parts.insert(0, task.phase)
    if len(run.tasks) > 1:
        parts.append(f"{sum(one.done for one in run.tasks)} trials of all {len(run.tasks)}")
    if not math.isnan(run.secs_left):
        parts.append(f"about {run.secs_left:.0f} s left")
    return f"{task.name}: {', '.join(parts)}"


def failed(task: TaskState) -> str:
    """The failures of a task in words."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(task.failures.items()))
    return f"{task.failures.total()} failed" + (f" ({kinds})" if kinds else "")
