# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""A runner that gives up early on hopeless candidates and repeats the best ones."""

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.runner import (
    EvaluatorConfig,
    PyRunner,
    PyRunnerFuture,
    RunnerFuture,
    RunnerInput,
    RunnerResult,
)

from .builder import WarmBuilder
from .failures import Failure, failure_at
from .functions import check_functions
from .linux import require_linux
from .pool import TaskFailed, WorkerPool
from .task_signature import arguments_signature, read_task
from .timing import Allocate, Evaluate, Timing, TimingConfig, prepare_to_time, time_candidate

LOAD_SECS = 10.0
"""Seconds for loading a candidate and allocating its arguments."""

SLACK = 2.0
"""How much longer than computed a candidate may take: the machine may be busy."""


@dataclass
class RunStats:
    """Counts and seconds of a runner.

    Parameters
    ----------
    runs : int
        The candidates that it was given.
    retries : int
        The candidates that it tried once more after a failure of the machinery.
    hopeless, near_best : int
        The candidates that it gave up after one call, and those that it repeated for being near the
        best.
    failures : Counter[str]
        The candidates that failed in the end, by kind: "error", "timeout", "crash", "invalid time",
        "build" for those that a builder promised and could not build, and "machinery" or "closed"
        where the machinery failed, the builder's included.
    load_secs, timing_secs : float
        The seconds that its worker spent loading candidates, and filling their arguments and
        running them.
    wall_secs : float
        The seconds that measuring took, those spent waiting for promised builds included.
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


@derived_object
class PromptRunnerFuture(PyRunnerFuture):
    """The future result of a candidate.

    Parameters
    ----------
    future : Future[RunnerResult]
        The result.
    """

    def __init__(self, future: "Future[RunnerResult]") -> None:
        super().__init__()
        self._future = future

    def done(self) -> bool:
        """Whether the candidate has been measured."""
        return self._future.done()

    def result(self) -> RunnerResult:
        """Wait for the candidate to be measured."""
        return self._future.result()


@derived_object
class PromptRunner(PyRunner):
    """A runner for the devices of this machine that spends its time on the best candidates.

    TVM's ``LocalRunner`` times a kernel that is a hundred times too slow for as long as the best.
    This one knows the best time of the task and

    - gives up on a candidate once one timed call took more than ``hopeless`` times the best: it
      returns that one time;
    - times the others as the evaluator's configuration says, as ``LocalRunner`` does;
    - repeats those within ``near_best`` times the best, on newly allocated arguments each time,
      until there are ``near_best_repeats``; half of them in a fresh process, because some kernels
      are up to 1.6 times as fast in one process as in another, and the luckiest would win.

    So ``run_secs`` of its results differ in length; each entry is a repeat that was taken.
    Candidates run one after the other in a worker that stays up, apart from this process. A
    candidate that raises, hangs or crashes is a worded failure, and so is one whose time is not a
    positive number: TVM's JSON database cannot be opened again once it holds a NaN, and ranks a
    zero first for ever.

    A failure of the machinery is not the candidate's: the candidate is tried once more. If that
    fails too, its result has an ``error_msg`` that begins with ``MACHINERY_FAILURE``, and
    ``run_secs`` that are empty but not None, so that TVM's database does not hold the candidate as
    failed (``failures.py``). TVM's own cost models still learn from it as from a failed candidate.

    TVM does not tell a runner which task a candidate belongs to. The runner goes by the candidate's
    arguments and, if a ``WarmBuilder`` built it, by the operations in its module
    (``task_signature``).

    Parameters
    ----------
    timeout_sec : float
        The most seconds that one candidate may take; see ``time_limit``.
    evaluator_config : EvaluatorConfig | None
        Defaults to TVM's: ``number=3, repeat=1, min_repeat_ms=100``.
    cooldown_sec : float
        The seconds to wait after each candidate.
    alloc_repeat : int
        The number of times to allocate the arguments of each candidate.
    f_alloc_argument, f_run_evaluator, f_cleanup : str | Callable | None
        As of ``LocalRunner``: a function or the name of a global one. ``f_run_evaluator`` is called
        more than once for a candidate, with configurations of different length.
    initializer : Callable[[], None] | None
        A function that the worker calls before its first candidate.
    hopeless : float
        A candidate is given up if one call takes more than this many times the best time; infinity
        for never.
    near_best : float
        A candidate is repeated if its time is at most this many times the best time.
    near_best_repeats : int
        The least number of repeats that it then has. An estimate of the noise needs two.
    cpus : frozenset[int] | None
        The CPUs that candidates run on; None for all.
    builder : WarmBuilder | None
        Experimental: no gain has been measured. The builder, made with ``overlap``, whose promises
        to wait for. Candidates are then measured while others are still being built, and ``run``
        returns before they are.

    Raises
    ------
    TypeError
        If a function cannot be pickled for the worker.
    ValueError
        If a number is out of range.
    TaskFailed
        If the initializer raises or a function's name is not registered in the worker.
    RuntimeError
        If this is not Linux.
    """

    def __init__(
        self,
        *,
        timeout_sec: float = 30.0,
        evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0,
        alloc_repeat: int = 1,
        f_alloc_argument: str | Allocate | None = None,
        f_run_evaluator: str | Evaluate | None = None,
        f_cleanup: str | Callable[[], None] | None = None,
        initializer: Callable[[], None] | None = None,
        hopeless: float = 3.0,
        near_best: float = 1.1,
        near_best_repeats: int = 5,
        cpus: frozenset[int] | None = None,
        builder: WarmBuilder | None = None,
    ) -> None:
        require_linux("PromptRunner")
        super().__init__()
        for name, value, below in (
            ("timeout_sec", timeout_sec, 0.0),
            ("hopeless", hopeless, 1.0),
            ("near_best", near_best, 0.0),
        ):
            if not value > below:
                raise ValueError(f"{name} = {value}, expected a number greater than {below:g}")
        for name, value, least in (
            ("cooldown_sec", cooldown_sec, 0.0),
            ("alloc_repeat", alloc_repeat, 1.0),
            ("near_best_repeats", near_best_repeats, 1.0),
        ):
            if not value >= least:
                raise ValueError(f"{name} = {value}, expected at least {least:g}")
        self.timeout_sec = timeout_sec
        self.config = TimingConfig(
            EvaluatorConfig._normalized(evaluator_config),
            alloc_repeat,
            cooldown_sec,
            hopeless,
            near_best,
            near_best_repeats,
            f_alloc_argument,
            f_run_evaluator,
            f_cleanup,
        )
        self.stats = RunStats()
        self._best: dict[tuple[str, str, str], float] = {}
        self._builder = builder
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._pool = WorkerPool(
            1, initializer=initializer, cpus=cpus, prepare=prepare_to_time, quiet=True
        )
        functions = [f_alloc_argument, f_run_evaluator, f_cleanup]
        check_functions(self._pool, timeout_sec, initializer, functions)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Measure a batch.

        Parameters
        ----------
        runner_inputs : Sequence[RunnerInput]
            The artefacts, their device and their arguments.

        Returns
        -------
        futures : list[RunnerFuture]
            In the order of the inputs.
        """
        if self._closed.is_set():
            self._closed = threading.Event()
        items = [_Item.from_input(runner_input) for runner_input in runner_inputs]
        if self._builder is None:
            try:
                self._measure_all(items, self._closed)
            except KeyboardInterrupt:
                self.close()
                raise
        else:
            self._measure_in_thread(items, self._closed)
        return [PromptRunnerFuture(item.future) for item in items]

    def learn(self, runner_input: RunnerInput, secs: float) -> None:
        """Take over the time of a candidate that was measured before, and is not measured again.

        The next candidates of its task are then given up, or repeated, as if it had been.

        Parameters
        ----------
        runner_input : RunnerInput
            The candidate. No artefact is needed in its folder, only what ``write_task`` leaves.
        secs : float
            Its mean time in seconds.
        """
        item = _Item.from_input(runner_input)
        task = _task_of(item, item.path)
        self._best[task] = min(self._best.get(task, math.inf), secs)

    def close(self) -> None:
        """End the worker; candidates that it has not measured fail. Another batch restarts it."""
        self._closed.set()
        self._pool.close()

    def _measure_in_thread(self, items: "Sequence[_Item]", closed: threading.Event) -> None:
        # A daemon, so that an interrupted process need not first measure the rest.
        thread = threading.Thread(
            target=self._measure_all,
            args=(items, closed),
            name="tvm_droplet_ms.measure",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._fail(items, Failure("machinery", f"PromptRunner: {error}"))

    def _measure_all(self, items: "Sequence[_Item]", closed: threading.Event) -> None:
        """Measure candidates one after the other; afterwards every future has a result."""
        try:
            for item in items:
                with self._turn:
                    item.future.set_result(self._measure(item, closed))
        except BaseException as error:
            self._fail(items, Failure("closed", f"PromptRunner: ended by {error!r}"))
            raise

    def _fail(self, items: "Sequence[_Item]", failure: Failure) -> None:
        """Fail the candidates that have no result yet."""
        for item in items:
            if not item.future.done():
                self.stats.failures[failure.kind] += 1
                item.future.set_result(_failed(failure))

    def _measure(self, item: "_Item", closed: threading.Event) -> RunnerResult:
        start = time.perf_counter()
        self.stats.runs += 1
        try:
            outcome = self._time(item, closed)
        except Exception as error:
            # No code of the candidate runs in this process, so the fault is not its own.
            outcome = Failure("machinery", f"PromptRunner: {type(error).__name__}: {error}")
        self.stats.wall_secs += time.perf_counter() - start
        if isinstance(outcome, Failure):
            self.stats.failures[outcome.kind] += 1
            return _failed(outcome)
        return RunnerResult(outcome.secs, None)

    def _time(self, item: "_Item", closed: threading.Event) -> Timing | Failure:
        if closed.is_set():
            return Failure("closed", "PromptRunner: closed")
        failure = failure_at(item.path)
        if failure is not None:
            return failure
        path = item.path
        if self._builder is not None:
            try:
                path = self._builder.artifact(path)
            except TaskFailed as error:
                failure = error.failure
                return failure if failure.is_machinery else Failure("build", failure.message)
        if not os.path.exists(path):
            return Failure("machinery", f"PromptRunner: {path} is missing, expected an artefact")
        return self._time_artefact(item, path)

    def _time_artefact(self, item: "_Item", path: str) -> Timing | Failure:
        task = _task_of(item, path)
        best = self._best.get(task, math.inf)
        outcome = self._time_in_processes(item, path, best)
        if isinstance(outcome, Failure) and outcome.kind == "machinery":
            self.stats.retries += 1
            outcome = self._time_in_processes(item, path, best)
        if isinstance(outcome, Failure):
            return Failure(outcome.kind, f"PromptRunner: {outcome.message}")
        self.stats.load_secs += outcome.load_secs
        self.stats.timing_secs += outcome.timing_secs
        self.stats.process = outcome.process
        if not outcome.secs or not all(0.0 < secs < math.inf for secs in outcome.secs):
            return Failure(
                "invalid time",
                f"PromptRunner: the times {outcome.secs} s of {path} were measured, expected "
                "positive numbers",
            )
        self.stats.hopeless += outcome.verdict == "hopeless"
        self.stats.near_best += outcome.verdict == "near best"
        self._best[task] = min(best, fmean(outcome.secs))
        return outcome

    def _time_in_processes(self, item: "_Item", path: str, best: float) -> Timing | Failure:
        """Time a candidate in the worker, and if it is near the best, in a fresh one too."""
        repeats = self.config.near_best_repeats
        config = replace(self.config, near_best_repeats=repeats - repeats // 2)
        first = self._run_in_worker(config, item, path, best)
        if isinstance(first, Failure) or first.verdict == "hopeless" or not first.secs:
            return first
        missing = repeats - len(first.secs)
        if missing <= 0 or not fmean(first.secs) <= self.config.near_best * best:
            return first
        config = replace(
            self.config,
            evaluator=self.config.evaluator._replace(repeat=1),
            near_best_repeats=missing,
        )
        second = self._run_in_worker(config, item, path, math.inf, fresh=True)
        if isinstance(second, Failure):
            return second
        return Timing(
            [*first.secs, *second.secs],
            "near best",
            first.load_secs + second.load_secs,
            first.timing_secs + second.timing_secs,
            first.process,
        )

    def time_limit(self, best: float) -> float:
        """The seconds that a candidate may take.

        Parameters
        ----------
        best : float
            The best time of its task so far, in seconds; infinity if there is none.

        Returns
        -------
        secs : float
            At most ``timeout_sec``. What takes longer than the slowest candidate that is not
            hopeless is killed before that.
        """
        config, evaluator = self.config, self.config.evaluator
        call = config.hopeless * best
        repeat = max(evaluator.number * call, 1e-3 * evaluator.min_repeat_ms + call)
        repeats = max(evaluator.repeat * config.alloc_repeat, config.near_best_repeats)
        needed = 2 * call + repeats * repeat
        return float(min(self.timeout_sec, LOAD_SECS + SLACK * needed + config.cooldown_sec))

    def _run_in_worker(
        self, config: TimingConfig, item: "_Item", path: str, best: float, *, fresh: bool = False
    ) -> Timing | Failure:
        try:
            timing: Timing = self._pool.submit(
                self.time_limit(best),
                time_candidate,
                config,
                path,
                item.device_type,
                item.args_info,
                best,
                fresh=fresh,
            ).result()
        except TaskFailed as error:
            return error.failure
        except (OSError, RuntimeError) as error:
            return Failure("machinery", f"the worker cannot be started: {error}")
        return timing


def _failed(failure: Failure) -> RunnerResult:
    """The result of a candidate that was not measured; see ``failures.py``."""
    return RunnerResult([] if failure.is_machinery else None, str(failure))


@dataclass(frozen=True)
class _Item:
    path: str
    device_type: str
    args_info: list[Any]
    future: "Future[RunnerResult]" = field(default_factory=Future)

    @staticmethod
    def from_input(runner_input: RunnerInput) -> "_Item":
        return _Item(
            str(runner_input.artifact_path),
            str(runner_input.device_type),
            [info.as_json() for info in runner_input.args_info],
        )


def _task_of(item: _Item, path: str) -> tuple[str, str, str]:
    """What the candidates of one task have in common."""
    arguments = arguments_signature(item.args_info)
    return item.device_type, arguments, read_task(os.path.dirname(path))
