# SPDX-License-Identifier: Apache-2.0
"""A runner that gives up early on hopeless candidates and repeats the best ones."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
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

from .candidate_timer import Candidate, CandidateTimer
from .failures import Failure
from .functions import check_functions
from .pool import TaskFailed, WorkerPool, require_linux
from .timing import Timing, TimingConfig, prepare_to_time, time_candidate


@derived_object
class PromptRunnerFuture(PyRunnerFuture):
    """The future result of a candidate, in TVM's interface."""

    def __init__(self, future: "Future[RunnerResult]") -> None:
        super().__init__()
        self._future = future

    def done(self) -> bool:
        """True if the candidate has been measured."""
        return self._future.done()

    def result(self) -> RunnerResult:
        """Wait for the candidate to be measured."""
        return self._future.result()


@derived_object
class PromptRunner(PyRunner):
    """A runner for the devices of this machine that spends its time on the best candidates.

    TVM's ``LocalRunner`` spends as much time on a kernel that is a hundred times too slow as on the
    best one. ``PromptRunner`` knows the best time of the task and

    - gives up on a candidate once one timed call took more than ``hopeless`` times the best: it
      returns that one time;
    - times the other candidates by the evaluator's configuration, as ``LocalRunner`` does;
    - repeats candidates within ``near_best`` times the best until they have ``near_best_repeats``
      repeats, each on newly allocated arguments. Half of the repeats run in a fresh process: some
      kernels are up to 1.6 times as fast in one process as in another, and the luckiest would win.

    So the ``run_secs`` of results differ in length; each entry is one repeat. Candidates run one
    after the other in a long-lived worker process. A candidate that raises, hangs or crashes fails
    with a message. So does a candidate whose time is not a positive number: TVM cannot reopen a
    JSON database that holds a NaN, and it ranks a time of zero first forever.

    A machinery failure is not the candidate's fault: the runner tries the candidate once more. If
    that fails too, the result has an ``error_msg`` that begins with ``MACHINERY_FAILURE``, and
    ``run_secs`` that are empty but not None, so that TVM's database does not record the candidate
    as failed (``failures.py``). TVM's own cost models still treat it as a failed candidate.

    TVM does not tell a runner which task a candidate belongs to. The runner identifies the task by
    the candidate's arguments and, if a ``WarmBuilder`` built it, by the operations in its module
    (``task_signature``).

    Parameters
    ----------
    evaluator_config : EvaluatorConfig | None
        Defaults to TVM's: ``number=3, repeat=1, min_repeat_ms=100``.
    initializer : Callable[[], None] | None
        A function that the worker calls before its first candidate.
    cpus : frozenset[int] | None
        The CPUs that candidates run on; None for all.
    **timing
        The other settings of ``TimingConfig``: ``timeout_sec``, ``cooldown_sec``, ``alloc_repeat``,
        ``f_alloc_argument``, ``f_run_evaluator``, ``f_cleanup``, ``hopeless``, ``near_best`` and
        ``near_best_repeats``.

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
        evaluator_config: EvaluatorConfig | None = None,
        initializer: Callable[[], None] | None = None,
        cpus: frozenset[int] | None = None,
        **timing: Any,
    ) -> None:
        require_linux("PromptRunner")
        super().__init__()
        self.config = TimingConfig(EvaluatorConfig._normalized(evaluator_config), **timing)
        self._closed = threading.Event()
        self._pool = WorkerPool(
            1, initializer=initializer, cpus=cpus, prepare=prepare_to_time, quiet=True
        )
        # A bound method would keep this object, and so the worker, alive.
        times = partial(_time_in_worker, self._pool)
        self._timer = CandidateTimer("PromptRunner", self.config, times)
        self.stats = self._timer.stats
        config = self.config
        functions = [config.f_alloc_argument, config.f_run_evaluator, config.f_cleanup]
        check_functions(self._pool, config.timeout_sec, initializer, functions)

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Measure a batch; the futures are in the order of the inputs."""
        if self._closed.is_set():
            self._closed = threading.Event()
        items = [Candidate.from_input(runner_input) for runner_input in runner_inputs]
        try:
            self._measure_all(items, self._closed)
        except KeyboardInterrupt:
            self.close()
            raise
        return [PromptRunnerFuture(item.future) for item in items]

    def time_limit(self, best: float) -> float:
        """Return the time limit of a candidate; see ``CandidateTimer.time_limit``."""
        return self._timer.time_limit(best)

    def end_by(self, moment: float) -> None:
        """Set a deadline for candidates that start from now on; see ``WorkerPool.end_by``."""
        self._pool.end_by(moment)

    def close(self) -> None:
        """End the worker; unmeasured candidates fail. Another batch restarts the worker."""
        self._closed.set()
        self._pool.close()

    def _measure_all(self, items: Sequence[Candidate], closed: threading.Event) -> None:
        """Measure candidates one after the other; afterwards every future has a result."""
        try:
            for item in items:
                item.future.set_result(self._timer.measure(item, closed.is_set))
        except BaseException as error:
            failure = Failure("closed", f"PromptRunner: ended by {error!r}")
            for item in items:
                if not item.future.done():
                    item.future.set_result(self._timer.failed(failure))
            raise


def _time_in_worker(
    pool: WorkerPool,
    limit: float,
    config: TimingConfig,
    candidate: Candidate,
    best: float,
    *,
    fresh: bool,
) -> Timing | Failure:
    task = (config, candidate.path, candidate.device_type, candidate.args_info, best)
    try:
        timing: Timing = pool.submit(limit, time_candidate, *task, fresh=fresh).result()
    except TaskFailed as error:
        return error.failure
    except (OSError, RuntimeError) as error:
        return Failure("machinery", f"the worker cannot be started: {error}")
    return timing
