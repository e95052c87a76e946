# SPDX-License-Identifier: Apache-2.0
"""A runner that gives up early on hopeless candidates and repeats the best ones."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

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
from .linux import require_linux
from .pool import TaskFailed, WorkerPool
from .timing import Allocate, Evaluate, Timing, TimingConfig, prepare_to_time, time_candidate


@derived_object
class PromptRunnerFuture(PyRunnerFuture):
    """The future result of a candidate, as TVM asks for it."""

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
    ) -> None:
        require_linux("PromptRunner")
        super().__init__()
        self.timeout_sec = timeout_sec
        self.config = TimingConfig(
            timeout_sec=timeout_sec,
            evaluator=EvaluatorConfig._normalized(evaluator_config),
            cooldown_sec=cooldown_sec,
            alloc_repeat=alloc_repeat,
            hopeless=hopeless,
            near_best=near_best,
            near_best_repeats=near_best_repeats,
            f_alloc_argument=f_alloc_argument,
            f_run_evaluator=f_run_evaluator,
            f_cleanup=f_cleanup,
        )
        self._closed = threading.Event()
        self._pool = WorkerPool(
            1, initializer=initializer, cpus=cpus, prepare=prepare_to_time, quiet=True
        )
        # A method of this object would keep it, and so the worker, alive.
        times = partial(_time_in_worker, self._pool)
        self._timer = CandidateTimer("PromptRunner", self.config, times)
        self.stats = self._timer.stats
        functions = [f_alloc_argument, f_run_evaluator, f_cleanup]
        check_functions(self._pool, timeout_sec, initializer, functions)

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
        """The seconds that a candidate may take; see ``CandidateTimer.time_limit``."""
        return self._timer.time_limit(best)

    def end_by(self, moment: float) -> None:
        """Limit the candidates that are begun from now on; see ``WorkerPool.end_by``."""
        self._pool.end_by(moment)

    def close(self) -> None:
        """End the worker; candidates that it has not measured fail. Another batch restarts it."""
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
