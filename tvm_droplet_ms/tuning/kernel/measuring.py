# SPDX-License-Identifier: Apache-2.0
"""One run of ``tune_kernel``: its measurements, and the choice among them."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
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
from ...search_strategy.history import is_unmeasured
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
"""The most candidates that TVM asks a strategy for at once, as in ``ms.tune_tir``."""


class KernelRun:
    """One run of ``tune_kernel``."""

    def __init__(
        self,
        module: IRModule,
        target: Target,
        directory: Path,
        name: str,
        seed: int,
        fleet: Fleet | None,
        allocate: GivenArguments | None,
    ) -> None:
        self._module = module
        self._target = target
        self._directory = directory
        self._name = name
        self._seed = seed
        self._fleet = fleet
        self._allocate = allocate
        try:
            self._database = open_database(directory)
        except (OSError, ValueError) as error:
            raise KernelError(str(error)) from error
        self.forecast = ""
        self.trials = 0
        self.measured = 0
        self.failures: Counter[str] = Counter()
        self.known = sum(not is_unmeasured(record.run_secs) for _, record in self._records())

    def _records(self) -> list[tuple[int, TuningRecord]]:
        """The records of the kernel for the target, with their positions in the file."""
        workload = structural_hash(self._module)
        return [
            (position, record)
            for position, record in read_records(self._directory)
            if is_for_target(record, self._target)
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
        rules.best_secs = min(map(mean, times), default=math.inf)
        left = trials - self.known
        if left <= 0:
            return "trials"
        if rules.reason:
            return rules.reason
        task = TaskState(self._name, trials, self.known, rules.best_secs)
        display = run_display(self._directory, progress)
        shown = ProgressCallback(display, RunState([task]), {0: self._name})
        written = WrittenRecords(self._directory, self._database)

        def should_stop() -> str:
            if written.lost:
                return "disk"
            is_lost = self._fleet is not None and self._fleet.runner.fault
            return "fleet" if is_lost else rules.reason

        def on_batch(_task: int, results: Sequence[RunnerResult]) -> None:
            rules.tell(results)
            self.trials += len(results)
            for result in results:
                self.measured += not is_unmeasured(result.run_secs, result.error_msg)
                if result.error_msg is not None:
                    self.failures[shortened(str(result.error_msg))] += 1

        tools = (
            fast_measure(self._target, f_alloc_argument=self._allocate, process_wide=False)
            if self._fleet is None
            else self._fleet.measure(self._target)
        )
        setup = TuningSetup(
            str(self._directory),
            self._database,
            strategy=strategy,
            space=space,
            callbacks=[OnBatch(on_batch), written, *callbacks, shown],
            seed=self._seed,
            **tools,
        )
        timing = TuningClock(Priorities([Stake(1.0, 1.0)]), 1, should_stop=should_stop)
        try:
            with fast_tune_contexts(), quiet_tvm(), followed_phases(task):
                context = setup.context(
                    self._module,
                    self._target,
                    task_name="main",
                    rand_state=fork_seed(self._seed, n=1)[0],
                    num_threads="physical",
                    logger=get_loggers_from_work_dir(str(self._directory), ["main"])[0],
                )
                measure([context], [1.0], timing, setup, Limits(math.inf, left, left, _BATCH))
        except ScheduleError as error:
            last = last_line(error).removeprefix("Error message: ")
            raise KernelError(
                f"{self._name} has no design space: TVM's rules fail for it ({last[:150]}); write "
                "its parts as kernels of their own"
            ) from error
        except RuntimeError:
            refuse_lost_fleet(self._fleet, self._directory, self.known + self.measured)
            raise
        except ValueError as error:
            raise KernelError(f"{self._name} could not be tuned: {error}") from error
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
                self._name,
                [argument.name for argument in arguments_of(self._module)],
                self._target,
                self._directory,
                self.known,
                self.failures,
                why_ended,
            )
        timed.sort(key=lambda row: row[:2])
        ranked = [(position, record) for _, position, record in timed]
        return Choice(self._name, self._module, self._directory, verifier).choose(ranked)
