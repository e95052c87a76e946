# SPDX-License-Identifier: Apache-2.0
"""Shows the measurements of any strategy."""

import weakref
from collections.abc import Mapping, Sequence

from tvm_ffi import structural_hash

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.s_tir.meta_schedule.task_scheduler import TaskScheduler

from ..measure import is_machinery_failure
from ..measure.failures import TIME_LIMIT
from ..search_strategy.logger import logger
from ..search_strategy.published.candidates import mean, valid_secs
from .displays import Display, console_display
from .state import RunState, TaskState


def failure_kind(build_error: str | None, run_error: str) -> str:
    """The kind of a failure, from the messages of a builder and a runner.

    Returns "build", "timeout", "run", or "machinery" if the candidate did not cause the failure.
    """
    if is_machinery_failure(run_error):
        return "machinery"
    if build_error is not None or run_error.startswith(("WarmBuilder", "LocalBuilder")):
        return "build"
    late = TIME_LIMIT in run_error or "timeout" in run_error.lower()
    return "timeout" if late else "run"


@derived_object
class ProgressCallback(PyMeasureCallback):  # type: ignore[misc]
    """Shows the progress of a run with any strategy.

    ``measure_callbacks=[*MeasureCallback.create("default"), ProgressCallback()]`` adds it to any
    call of MetaSchedule. The default display closes with the callback or by ``close``.

    Parameters
    ----------
    display : Display | None
        The display to use. None for a table on a terminal and lines elsewhere.
    run : RunState | None
        The state of earlier runs. None for an empty state.
    names : Mapping[int, str] | None
        Names of tasks by index, to replace uninformative names: ``tune_tir`` calls each ``main``.
    """

    def __init__(
        self,
        display: Display | None = None,
        run: RunState | None = None,
        names: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__()
        self._display = display or console_display()
        if display is None:
            # MetaSchedule does not notify callbacks of the end of a run. Close the display when TVM
            # releases the callback or when the process ends.
            weakref.finalize(self, _close, self._display)
        self._is_broken = False
        self._run, self._names = run or RunState(), names or {}

    def apply(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        """Record and show the results of a batch; see ``MeasureCallback.apply``."""
        context = task_scheduler.tasks_[task_id].ctx
        name, key = self._names.get(task_id) or str(context.task_name), structural_hash(context.mod)
        known = (task for task in self._run.tasks if task.key in (None, key))
        task = next((task for task in known if task.key is not None or task.name == name), None)
        if task is None:
            task = TaskState(name)
            self._run.tasks.append(task)
        times, failures = [], []
        for built, ran in zip(builder_results, runner_results, strict=True):
            secs = valid_secs(ran.run_secs)
            times.append(mean(secs) if secs else None)
            if ran.error_msg is not None:
                message = str(ran.error_msg)
                failures.append((failure_kind(built.error_msg, message), message))
        task.tell(times, failures)
        if self._run.model is not None:
            self._run.model.tell(key, task.best_secs, task.done)
        self._show(task)

    def _show(self, task: TaskState) -> None:
        if self._is_broken:
            return
        try:
            self._display.batch(self._run, task)
        # An exception of a display would pass through TVM's C++ and end the run.
        except Exception as error:
            self._is_broken = True
            logger.warning("the progress is not shown any more: %s", error)

    def close(self) -> None:
        """End the display: show pending output and release the terminal."""
        _close(self._display)


def _close(display: Display) -> None:
    try:
        display.close()
    # Nothing can catch an exception of a display while the process ends.
    except Exception as error:
        logger.warning("the end of the progress is not shown: %s", error)
