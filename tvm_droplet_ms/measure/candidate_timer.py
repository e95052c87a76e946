# SPDX-License-Identifier: Apache-2.0
"""Rules that make a runner spend its time on the best candidates, here or on servers."""

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from tvm.s_tir.meta_schedule.runner import RunnerInput, RunnerResult

from .failures import Failure, failure_at
from .task_signature import arguments_signature, read_task
from .timing import Timing, TimingConfig

LOAD_SECS = 10.0
"""Seconds allowed for loading a candidate and allocating its arguments."""

SLACK = 2.0
"""Safety factor on the computed time of a candidate: the machine may be busy."""


@dataclass(frozen=True)
class Candidate:
    """A candidate and its future result; ``args_info`` is in the format of ``ArgInfo.as_json``."""

    path: str
    device_type: str
    args_info: list[Any]
    future: "Future[RunnerResult]" = field(default_factory=Future)

    @staticmethod
    def from_input(runner_input: RunnerInput) -> "Candidate":
        """Make a candidate from a ``RunnerInput`` of TVM."""
        return Candidate(
            str(runner_input.artifact_path),
            str(runner_input.device_type),
            [info.as_json() for info in runner_input.args_info],
        )

    def task(self) -> tuple[str, str, str]:
        """The key that the candidates of one task share."""
        arguments = arguments_signature(self.args_info)
        return self.device_type, arguments, read_task(os.path.dirname(self.path))


@dataclass
class RunStats:
    """Counts and seconds of a runner.

    Parameters
    ----------
    runs : int
        Candidates that the runner received.
    retries : int
        Candidates that it tried once more after a machinery failure.
    hopeless, near_best : int
        Candidates that it gave up after one call, and candidates near the best that it repeated.
    failures : Counter[str]
        Candidates that failed in the end, by kind: "error", "timeout", "crash", "invalid time", or
        for machinery failures, the builder's included, "machinery" and "closed".
    load_secs, timing_secs : float
        Seconds that the worker spent loading candidates, and seconds that it spent filling their
        arguments and running them.
    wall_secs : float
        Seconds that measuring took.
    process : int | None
        The id of the worker process that timed the last candidate; None before the first.
    """

    runs: int = 0
    retries: int = 0
    hopeless: int = 0
    near_best: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    load_secs: float = 0.0
    timing_secs: float = 0.0
    wall_secs: float = 0.0
    process: int | None = None


TimesCandidates = Callable[..., Timing | Failure]
"""Times a candidate once, in a worker of this machine or on a server. It is called with the limit
in seconds, the ``TimingConfig``, the candidate and the best time, and by keyword with ``fresh``,
which asks for a new process."""


class CandidateTimer:
    """Times candidates, and repeats candidates near the best of their task.

    ``name``: the runner's name, the prefix of messages. ``times``: times a candidate once.
    """

    def __init__(self, name: str, config: TimingConfig, times: TimesCandidates) -> None:
        self._name = name
        self._config = config
        self._times = times
        self._best: dict[tuple[str, str, str], float] = {}
        self._lock = threading.Lock()
        self.stats = RunStats()

    def measure(
        self, candidate: Candidate, is_closed: Callable[[], bool] = lambda: False
    ) -> RunnerResult:
        """Measure a candidate, unless the runner is closed. Several threads may call this."""
        start = time.perf_counter()
        try:
            outcome = self._outcome(candidate, is_closed)
        except Exception as error:
            # The candidate does not run in this process, so the fault is not the candidate's.
            outcome = Failure("machinery", f"{self._name}: {type(error).__name__}: {error}")
        with self._lock:
            self.stats.runs += 1
            self.stats.wall_secs += time.perf_counter() - start
        if isinstance(outcome, Failure):
            return self.failed(outcome)
        return RunnerResult(outcome.secs, None)

    def failed(self, failure: Failure) -> RunnerResult:
        """Count a candidate that was not measured and return its result; see ``failures.py``."""
        with self._lock:
            self.stats.failures[failure.kind] += 1
        return RunnerResult([] if failure.is_machinery else None, str(failure))

    def time_limit(self, best: float) -> float:
        """Return the time limit of a candidate in seconds, given the best time of its task so far.

        The limit suffices for the slowest candidate that is not hopeless. It is at most
        ``timeout_sec``.
        """
        config, evaluator = self._config, self._config.evaluator
        call = config.hopeless * best
        repeat = max(evaluator.number * call, 1e-3 * evaluator.min_repeat_ms + call)
        repeats = max(evaluator.repeat * config.alloc_repeat, config.near_best_repeats)
        needed = 2 * call + repeats * repeat
        return float(min(config.timeout_sec, LOAD_SECS + SLACK * needed + config.cooldown_sec))

    def _outcome(self, candidate: Candidate, is_closed: Callable[[], bool]) -> Timing | Failure:
        path = candidate.path
        failure = failure_at(path)
        if failure is not None:
            return failure
        if is_closed():
            return Failure("closed", f"{self._name}: closed")
        if not os.path.exists(path):
            return Failure("machinery", f"{self._name}: {path} is missing, expected an artifact")
        task = candidate.task()
        best = self._best.get(task, math.inf)
        outcome = self._time_in_processes(candidate, best)
        if isinstance(outcome, Failure) and outcome.kind == "machinery":
            with self._lock:
                self.stats.retries += 1
            outcome = self._time_in_processes(candidate, best)
        if isinstance(outcome, Failure):
            return Failure(outcome.kind, f"{self._name}: {outcome.message}")
        with self._lock:
            self.stats.load_secs += outcome.load_secs
            self.stats.timing_secs += outcome.timing_secs
            self.stats.process = outcome.process
        if not outcome.secs or not all(0.0 < secs < math.inf for secs in outcome.secs):
            return Failure(
                "invalid time",
                f"{self._name}: the times {outcome.secs} s of {path} were measured, expected "
                "positive numbers",
            )
        with self._lock:
            self.stats.hopeless += outcome.verdict == "hopeless"
            self.stats.near_best += outcome.verdict == "near best"
            self._best[task] = min(self._best.get(task, math.inf), fmean(outcome.secs))
        return outcome

    def _time_in_processes(self, candidate: Candidate, best: float) -> Timing | Failure:
        """Time a candidate; if it is near the best, time it in a fresh process too."""
        limit, repeats = self.time_limit(best), self._config.near_best_repeats
        config = replace(self._config, near_best_repeats=repeats - repeats // 2)
        first = self._times(limit, config, candidate, best, fresh=False)
        if isinstance(first, Failure) or first.verdict == "hopeless" or not first.secs:
            return first
        missing = repeats - len(first.secs)
        if missing <= 0 or not fmean(first.secs) <= self._config.near_best * best:
            return first
        config = replace(
            self._config,
            evaluator=self._config.evaluator._replace(repeat=1),
            near_best_repeats=missing,
        )
        # An infinite best time, because the candidate must not be given up any more.
        limit = self.time_limit(math.inf)
        second = self._times(limit, config, candidate, math.inf, fresh=True)
        if isinstance(second, Failure):
            # "closed" means that the run's time was over: keep the first times.
            return first if second.kind == "closed" else second
        return Timing(
            [*first.secs, *second.secs],
            "near best",
            first.load_secs + second.load_secs,
            first.timing_secs + second.timing_secs,
            first.process,
        )
