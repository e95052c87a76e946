# SPDX-License-Identifier: Apache-2.0
"""One run of ``tune_kernel``: its measurements, and the choice among them."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.logging import get_loggers_from_work_dir
from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy
from tvm.s_tir.meta_schedule.space_generator import SpaceGenerator
from tvm.s_tir.meta_schedule.utils import fork_seed
from tvm.target import Target

from ...compat import fast_tune_contexts
from ...display import ProgressCallback, RunState, TaskState, run_display
from ...display.displays import Progress
from ...display.phases import followed_phases, quiet_tvm
from ...display.state import shortened
from ...measure import fast_measure
from ...measure.allocation import GivenArguments
from ...search_strategy.candidates import is_unmeasured
from ...search_strategy.published.candidates import is_for_target, mean, valid_secs
from ...session.database import open_database, read_records
from ...session.errors import last_line
from ..budget.loop import Limits, TuningSetup, measure
from ..budget.priorities import Priorities, Stake
from ..budget.scheduler import OnBatch, TuningClock
from ..budget.stop_rules import StopRules
from ..written_records import WrittenRecords
from .check.arguments import arguments_of
from .check.verification import Verifier
from .choice import Choice, Chosen
from .errors import KernelError
from .faults import nothing_measured
from .fleet import Fleet, refuse_lost_fleet

_BATCH = 64
"""The maximum number of candidates that TVM asks a strategy for at once, as in ``ms.tune_tir``."""


@dataclass
class KernelRun:
    """One run of ``tune_kernel``.

    - ``directory``: the work directory. ``name``: the kernel's name in messages.
    - ``fleet``: the servers that measure; None for this machine. ``allocate``: makes the arguments
      of candidates; None for random ones.
    - ``known``: the number of schedules that earlier runs measured. ``measured``: that of this run.
    - ``failures``: the failed schedules of this run, by reason. ``forecast``: the expected gain of
      further trials.
    """

    module: IRModule
    target: Target
    directory: Path
    name: str
    seed: int
    fleet: Fleet | None
    allocate: GivenArguments | None
    known: int = field(init=False)
    measured: int = field(default=0, init=False)
    failures: Counter[str] = field(default_factory=Counter, init=False)
    forecast: str = field(default="", init=False)

    def __post_init__(self) -> None:
        try:
            self._database = open_database(self.directory)
        except (OSError, ValueError) as error:
            raise KernelError(str(error)) from error
        self.known = sum(not is_unmeasured(record.run_secs) for _, record in self._records())

    def _records(self) -> list[tuple[int, TuningRecord]]:
        """The records of the kernel for the target, with their positions in the file."""
        workload = structural_hash(self.module)
        return [
            (position, record)
            for position, record in read_records(self.directory)
            if is_for_target(record, self.target)
            and structural_hash(record.workload.mod) == workload
        ]

    def tune(
        self,
        trials: int,
        rules: StopRules,
        strategy: SearchStrategy,
        space: SpaceGenerator | Callable[[Schedule], Any] | str,
        callbacks: Sequence[MeasureCallback],
        progress: Progress,
    ) -> str:
        """Measure the remaining trials; returns the reason that the run ended."""
        times = [secs for _, record in self._records() if (secs := valid_secs(record.run_secs))]
        rules.know(structural_hash(self.module), min(map(mean, times), default=math.inf))
        left = trials - self.known
        if left <= 0:
            return "trials"
        if rules.reason:
            return rules.reason
        task = TaskState(self.name, trials, self.known, rules.best_secs)
        display = run_display(self.directory, progress)
        shown = ProgressCallback(display, RunState([task]), {0: self.name})
        written = WrittenRecords(self.directory, self._database)

        def should_stop() -> str:
            if written.lost:
                return "disk"
            is_lost = self.fleet is not None and self.fleet.runner.fault
            return "fleet" if is_lost else rules.reason

        def on_batch(_task: int, results: Sequence[RunnerResult]) -> None:
            for result in results:
                self.measured += not is_unmeasured(result.run_secs, result.error_msg)
                if result.error_msg is not None:
                    self.failures[shortened(str(result.error_msg))] += 1

        tools = (
            fast_measure(self.target, f_alloc_argument=self.allocate, process_wide=False)
            if self.fleet is None
            else self.fleet.measure(self.target)
        )
        setup = TuningSetup(
            str(self.directory),
            self._database,
            strategy=strategy,
            space=space,
            callbacks=[rules, OnBatch(on_batch), written, *callbacks, shown],
            seed=self.seed,
            **tools,
        )
        timing = TuningClock(Priorities([Stake(1.0, 1.0)]), 1, should_stop=should_stop)
        try:
            with fast_tune_contexts(), quiet_tvm(), followed_phases(task):
                context = setup.context(
                    self.module,
                    self.target,
                    task_name="main",
                    rand_state=fork_seed(self.seed, n=1)[0],
                    num_threads="physical",
                    logger=get_loggers_from_work_dir(str(self.directory), ["main"])[0],
                )
                measure([context], [1.0], timing, setup, Limits(math.inf, left, left, _BATCH))
        except ScheduleError as error:
            last = last_line(error).removeprefix("Error message: ")
            raise KernelError(
                f"{self.name} has no design space: TVM's rules fail for it ({last[:150]}); write "
                "its parts as kernels of their own"
            ) from error
        except RuntimeError:
            refuse_lost_fleet(self.fleet, self.directory, self.known + self.measured)
            raise
        except ValueError as error:
            raise KernelError(f"{self.name} could not be tuned: {error}") from error
        finally:
            self.forecast = task.forecast
            shown.close()
            for part in tools.values():
                part.close()
        if written.lost:
            raise KernelError(written.lost)
        return rules.reason or timing.why_ended or "trials"

    def choose(self, verifier: Verifier, why_ended: str) -> Chosen:
        """Choose among the records with a valid time; see ``Choice``."""
        timed = [
            (mean(secs), position, record)
            for position, record in self._records()
            if (secs := valid_secs(record.run_secs))
        ]
        if not timed:
            raise nothing_measured(
                self.name,
                [argument.name for argument in arguments_of(self.module)],
                self.target,
                self.directory,
                self.known,
                self.failures,
                why_ended,
            )
        timed.sort(key=lambda row: row[:2])
        ranked = [(position, record) for _, position, record in timed]
        return Choice(self.name, self.module, self.directory, verifier).choose(ranked)
