# SPDX-License-Identifier: Apache-2.0
"""The state of a run's tasks, for its displays. Imports no TVM."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .model_state import ModelState

Failed = tuple[str, str]
"""The kind of a failure, and its message."""

MESSAGE_LENGTH = 200
"""The maximum length of a stored message, in characters."""


@dataclass
class TaskState:
    """The state of a task.

    Parameters
    ----------
    name : str
        The task's name.
    trials : int
        The planned number of trials, including earlier runs; 0 if unknown.
    known : int
        Number of trials in earlier runs.
    best_secs : float
        The best mean time so far in seconds; infinity before the first success.
    key : int | None
        The structural hash of the workload if the name is ambiguous: kernels of two graphs may have
        the same name. None if the name is enough.

    Attributes
    ----------
    done : int
        Number of trials so far, including earlier runs.
    since_gain : int
        Number of trials in this run since the last improvement.
    failures : Counter[str]
        Number of failed trials in this run, by kind.
    messages : dict[str, str]
        The message of the first failure of each kind.
    phase : str
        The phase of the search; empty if the strategy does not report it.
    forecast : str
        The expected gain of further trials; empty if the strategy does not report it.
    """

    name: str
    trials: int = 0
    known: int = 0
    best_secs: float = math.inf
    key: int | None = None
    done: int = field(default=0, init=False)
    since_gain: int = field(default=0, init=False)
    failures: Counter[str] = field(default_factory=Counter, init=False)
    messages: dict[str, str] = field(default_factory=dict, init=False)
    phase: str = field(default="", init=False)
    forecast: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.done = self.known

    def tell(self, times: Sequence[float | None], failures: Sequence[Failed] = ()) -> None:
        """Record the results of a batch.

        ``times``: the mean time of each trial in seconds; None for a failure.
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
    """The state of a run.

    Parameters
    ----------
    tasks : list[TaskState]
        The tasks.
    clock : Callable[[], float]
        A monotonic clock in seconds.
    started : float
        The start of the run, in seconds since the epoch.
    model : ModelState | None
        The model whose kernels the tasks are. None for a single kernel, and before the first
        executable.
    """

    tasks: list[TaskState] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    started: float = field(default_factory=time.time)
    model: ModelState | None = None

    def __post_init__(self) -> None:
        self._begun = self.clock()

    @property
    def secs(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self._begun

    @property
    def secs_left(self) -> float:
        """Estimated seconds until the last trial at the current rate; NaN if unknown."""
        done = sum(task.done - task.known for task in self.tasks)
        left = [max(0, task.trials - task.done) for task in self.tasks]
        if not done or not all(task.trials for task in self.tasks):
            return math.nan
        return self.secs / done * sum(left)

    @property
    def estimated_model(self) -> ModelState | None:
        """The model; None if its latency is not known."""
        return self.model if self.model is not None and self.model.secs > 0.0 else None

    def event(self, name: str, task: TaskState | None = None) -> dict[str, Any]:
        """An event of the run, or of a task, as JSON-compatible values; None for unknown values."""
        event = {
            "event": name,
            "started": round(self.started, 3),
            "secs": round(self.secs, 3),
        }
        if task is None:
            return event
        return event | {
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
    """An error message in one line: its first line, or the line of a traceback with the error."""
    lines = [line.rstrip() for line in message.splitlines() if line.strip()] or [""]
    text = lines[0].strip()
    if "Traceback" in text:
        frames = [number for number, line in enumerate(lines) if line.startswith("  File ")]
        # The error follows the last frame; its message may have several lines.
        after = lines[frames[-1] + 1 :] if frames else lines[-1:]
        raised = next((line for line in after if not line.startswith(" ")), lines[-1])
        text = text.partition("Traceback")[0] + raised.strip()
    return text[:MESSAGE_LENGTH]


def shown_us(secs: float) -> str:
    """Format seconds as microseconds with four significant digits, without an exponent."""
    us = 1e6 * secs
    return f"{us:.4g}" if us < 1e4 else f"{us:.0f}"


def sentence(run: RunState, task: TaskState) -> str:
    """The state of a task in one line."""
    best = "none yet" if math.isinf(task.best_secs) else f"{shown_us(task.best_secs)} us"
    trials = f"{task.done} of {task.trials}" if task.trials else f"{task.done}"
    parts = [task.phase] if task.phase else []
    parts += [f"{trials} trials", f"best {best}", f"{task.since_gain} since the last gain"]
    parts.append(failed(task))
    model = run.estimated_model
    if model is None:
        parts.append(f"{run.secs:.0f} s")
    if len(run.tasks) > 1:
        parts.append(f"{sum(one.done for one in run.tasks)} trials of all {len(run.tasks)}")
    if not math.isnan(run.secs_left):
        parts.append(f"about {run.secs_left:.0f} s left")
    line = f"{task.name}: {', '.join(parts)}"
    if model is None:
        return line
    shown = (model.shown_latency(), model.shown_time(run.clock()), model.shown_forecast())
    return f"{', '.join(shown)}; {line}"


def failed(task: TaskState) -> str:
    """The failures of a task as text."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(task.failures.items()))
    return f"{task.failures.total()} failed" + (f" ({kinds})" if kinds else "")
