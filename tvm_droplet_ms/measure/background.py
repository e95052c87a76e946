# SPDX-License-Identifier: Apache-2.0
"""Measures a batch while the strategy proposes the next one.

TVM's scheduler waits for a batch only when it needs the results (``task_scheduler.cc``,
``JoinRunningTask``). So the next batch, of another task, can be proposed during the measurement. A
proposal takes one CPU. Builds take all CPUs and would disturb the timings, so they wait.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerFuture, RunnerInput, RunnerResult

from .builder import WarmBuilder
from .failures import Failure
from .runner import PromptRunner, PromptRunnerFuture


@derived_object
class BackgroundRunner(PyRunner):
    """A runner whose ``run`` returns at once.

    ``runner``: measures one batch after the other. ``failures``: counts the candidates of batches
    for which ``runner`` raised an error, under "machinery". ``runner.stats`` counts the candidates
    that ``runner`` itself reported as failed.
    """

    def __init__(self, runner: PromptRunner) -> None:
        super().__init__()
        self._runner = runner
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tvm_droplet_ms.measure")
        self._last: Future[None] | None = None
        self.failures: Counter[str] = Counter()

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Begin to measure a batch; the futures are in the order of the inputs."""
        futures: list[Future[RunnerResult]] = [Future() for _ in runner_inputs]
        self._last = self._thread.submit(self._measure, list(runner_inputs), futures)
        return [PromptRunnerFuture(future) for future in futures]

    def _measure(
        self, runner_inputs: list[RunnerInput], futures: "list[Future[RunnerResult]]"
    ) -> None:
        try:
            results = [future.result() for future in self._runner.run(runner_inputs)]
        # Candidates do not run in this process, so the fault is not a candidate's.
        except Exception as error:
            failure = Failure("machinery", f"BackgroundRunner: {type(error).__name__}: {error}")
            self.failures[failure.kind] += len(runner_inputs)
            # Empty times mark a candidate that was not measured (``failures.py``).
            results = [RunnerResult([], str(failure)) for _ in runner_inputs]
        except BaseException as error:
            for future in futures:
                future.set_exception(error)
            raise
        for future, result in zip(futures, results, strict=True):
            future.set_result(result)

    def wait(self) -> None:
        """Wait for the measurements to finish."""
        if self._last is not None:
            self._last.exception()

    def end_by(self, moment: float) -> None:
        """Set a deadline for candidates that start from now on; see ``WorkerPool.end_by``."""
        self._runner.end_by(moment)

    def close(self) -> None:
        """End the worker; unmeasured candidates fail."""
        self._runner.close()
        self._thread.shutdown()


@derived_object
class PatientBuilder(PyBuilder):
    """A builder that starts a batch only while no measurement runs."""

    def __init__(self, builder: WarmBuilder, runner: BackgroundRunner) -> None:
        super().__init__()
        self._builder = builder
        self._runner = runner

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Wait for the measurements, then build a batch."""
        self._runner.wait()
        return self._builder.build(build_inputs)

    def end_by(self, moment: float) -> None:
        """Set a deadline for builds that start from now on; see ``WorkerPool.end_by``."""
        self._builder.end_by(moment)

    def close(self) -> None:
        """End the workers."""
        self._builder.close()
