# SPDX-License-Identifier: Apache-2.0
"""Find schedules for the kernels of a model: first by picking, then by measuring."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import ScheduleError
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy

from ..measure import fast_measure
from ..measure.background import BackgroundRunner, PatientBuilder
from ..search_strategy.prior import find_prior
from ..session.roofline import measure_machine
from ..session.stop import StopRequest
from .budget.ending import GRACE_SECS, batch_size
from .budget.loop import Limits, TuningSetup
from .budget.priorities import Priorities
from .budget.tuning_run import TuningRun, in_whole_batches, tune_tasks_by_clock, with_design_space
from .cold_timing import InsideTiming, allocate_or_keep
from .compile.kernel_objects import KernelObjects
from .compile.lowering import ModelBuilder
from .experience.strategy import model_strategy
from .model_kernels import ModelKernels
from .picks.first_picks import is_tunable, pick_schedules
from .picks.pick_contest import PickContest
from .picks.pick_pace import PickPace
from .picks.pick_workers import PickWorkers, start_workers
from .picks.picks import PickFile
from .run_context import RunContext
from .schedules import best_records, kept_choice
from .written_records import WrittenRecords

logger = logging.getLogger(__name__)


class KernelTuner:
    """Picks and measures schedules for the kernels of a model and of its variants.

    - ``make_strategy``, ``make_priorities``: called as ``model_strategy`` and ``Priorities``.
    - ``keep_measuring``: whether the measuring processes outlive a call of ``tune``. Starting them
      takes seconds, which many short calls would pay every time.
    - ``suffix``: appended to the kernel names.
    - ``why_ended``: "time", "trials", "interrupt", "patience" or "converged"; empty if nothing was
      measured.
    """

    make_strategy: Callable[..., SearchStrategy] = staticmethod(model_strategy)
    make_priorities: Callable[..., Priorities] = Priorities
    keep_measuring = False

    def __init__(self, context: RunContext, database: Database, suffix: str = "") -> None:
        self._suffix = suffix
        self.rates = measure_machine(context.threads)
        self.trials = 0
        self.why_ended = ""
        self.database = database
        self.context = context
        self._measure: dict[str, Any] = {}
        self._first_secs: dict[int, float] = {}
        self._timing = InsideTiming()
        self._workers = start_workers()
        self._objects = KernelObjects(context.target, self._workers)
        self._builder = ModelBuilder(self._objects, context.target, suffix)

    def close(self) -> None:
        """End the worker processes."""
        self._stop_measuring()
        self._workers.close()

    def _start_measuring(self) -> None:
        if not self._measure:
            measure = fast_measure(
                self.context.target,
                f_alloc_argument=allocate_or_keep,
                f_run_evaluator=self._timing,
                process_wide=False,
            )
            runner = BackgroundRunner(measure["runner"])
            builder = PatientBuilder(measure["builder"], runner)
            self._measure = {"builder": builder, "runner": runner}

    def _stop_measuring(self) -> None:
        for part in self._measure.values():
            part.close()
        self._measure = {}

    def compile_by(self, deadline: float) -> None:
        """Give up compiling some seconds after the deadline of the run."""
        self._objects.deadline = deadline + GRACE_SECS

    def kernels(self, graph: IRModule) -> ModelKernels:
        """Return the kernels of a prepared graph."""
        with self.context.phases("graph"):
            kernels = ModelKernels(
                graph, self.context.target, self.database, self._builder, suffix=self._suffix
            )
            kernels.preferred = kept_choice(
                self.context.directory, self.database, self.context.target
            )
            return kernels

    def pick(self, kernels: ModelKernels, stop: StopRequest) -> None:
        """Give every kernel a schedule; see ``pick_schedules``."""
        context = self.context
        with context.phases("first picks"):
            kernels.picks = pick_schedules(
                kernels.tasks,
                self.rates,
                warm_start=context.warm_start,
                work_dir=context.directory,
                seed=context.seed,
                pace=PickPace(len(kernels.tasks), self._workers.workers, lambda: stop.left),
                workers=PickWorkers(self._workers, context.warm_start.prior, lambda: stop.left),
                measured=best_records(self.database, context.target),
            )
        for note in kernels.picks.unscheduled_notes():
            self.context.note(note)

    def measure_picks(
        self, kernels: ModelKernels, secs: Mapping[str, float], stop: StopRequest, build_secs: float
    ) -> int:
        """Measure the first picks of the expensive kernels; see ``PickContest.run``.

        The current times of the kernels are kept: tuning estimates its possible gain from them.
        """
        for task in kernels.tasks:
            if str(task.task_name) in secs:
                key = structural_hash(task.dispatched[0])
                self._first_secs[key] = secs[str(task.task_name)] / int(task.weight)
        tasks = [t for t in kernels.tasks if is_tunable(t) and t.task_name not in kernels.untouched]
        if stop.is_due or not tasks:
            return 0
        with self.context.phases("first picks measured"):
            self._start_measuring()
            self._timing.set_tasks([task.dispatched[0] for task in tasks])
            contest = PickContest(
                self.context.target,
                self.rates,
                PickWorkers(self._workers, self.context.warm_start.prior, lambda: stop.left),
                (self._measure["builder"], self._measure["runner"]),
                PickFile(self.context.directory),
                self.context.seed + 1,  # Samples other schedules than the first pick did.
                self.context.warm_start.known,
            )
            count = contest.run(tasks, kernels.picks, secs, stop, build_secs)
        for pick in kernels.picks:
            if pick.secs is not None:
                self._first_secs[structural_hash(pick.mod)] = pick.secs
        return count

    def best_secs(self, task: ExtractedTask) -> float:
        """Return the best seconds of a task or of its first pick; infinity if there are none."""
        key = structural_hash(task.dispatched[0])
        best = best_records(self.database, self.context.target).get(key)
        return min(math.inf if best is None else best[1], self._first_secs.get(key, math.inf))

    def tune(
        self,
        tasks: Sequence[ExtractedTask],
        kernels: ModelKernels,
        stop: StopRequest,
        trials: int | None,
        batch: int | None = None,
        each: int | None = None,
        strategy: SearchStrategy | None = None,
    ) -> None:
        """Measure until the time runs out.

        - ``kernels``: the kernels of the tasks; the tasks start from their picks.
        - ``batch``: the maximum trials of a batch; None for ``batch_size`` of the remaining time.
        - ``each``: the maximum trials of a task; None for no limit.
        - ``strategy``: the search strategy; None for the result of ``make_strategy``.
        """
        observer = self.context.observer
        observer.know_records(tasks, self.database, self.context.target)
        names = kernels.untouched | set(kernels.picks.unscheduled)
        left_out = {
            structural_hash(task.dispatched[0]) for task in kernels.tasks if task.task_name in names
        }
        # Tasks of another graph may have the same names.
        tasks = [task for task in tasks if structural_hash(task.dispatched[0]) not in left_out]
        # All tasks share one cost model, so that each kernel's measurements help the next ones.
        prior = find_prior(self.context.warm_start.prior, self.context.target)
        strategy = strategy or self.make_strategy(
            tasks,
            self.database,
            self.context.target,
            kernels.picks,
            self.context.warm_start.known,
            prior=prior,
            stop=observer.stop,
        )
        self._start_measuring()
        self._timing.set_tasks([task.dispatched[0] for task in tasks])

        written = WrittenRecords(self.context.directory, self.database)
        setup = TuningSetup(
            str(self.context.directory),
            self.database,
            strategy=strategy,
            callbacks=[*observer.callbacks, written],
            seed=self.context.seed,
            **self._measure,
        )

        def should_stop() -> str:
            if stop.is_asked:
                return "interrupt"
            return "patience" if observer.rules.reason or written.lost else ""

        def run(size: int, most: int | None) -> TuningRun:
            nonlocal tasks
            while True:
                try:
                    return tune_tasks_by_clock(
                        tasks,
                        setup,
                        Limits(stop.deadline, most, each, size, should_stop),
                        rates=self.rates,
                        make_priorities=self.make_priorities,
                        first_secs=self._first_secs,
                    )
                except ScheduleError:
                    tasks, names = with_design_space(tasks)
                    if not names:
                        raise
                    self.context.note(
                        f"TVM's rules fail for {', '.join(names)}, which cannot be searched"
                    )

        size = batch or batch_size(stop.left, max(1, len(tasks)))
        try:
            with self.context.phases("tuning"):
                count, why = in_whole_batches(run, size, trials)
        finally:
            observer.close()
            if not self.keep_measuring:
                self._stop_measuring()
        written.check()
        self.trials += count
        self.why_ended = why
        logger.info("%d trials, ended by: %s", count, self.why_ended)
