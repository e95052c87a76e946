# SPDX-License-Identifier: Apache-2.0
"""Times kernels and whole graphs on this machine with the components of ``tune``."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_ffi import structural_hash

import tvm
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.target import Target
from tvm_droplet_ms.cost_model.training_data import target_text
from tvm_droplet_ms.model.kernels.lowering_passes import register_schedule_rules
from tvm_droplet_ms.search_strategy import DropletStrategy
from tvm_droplet_ms.session.database import open_database
from tvm_droplet_ms.session.errors import last_line
from tvm_droplet_ms.session.records import mend_torn_end
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.budget.priorities import Priorities
from tvm_droplet_ms.tuning.check.diagnosis import SearchClock, without_wrong_schedules
from tvm_droplet_ms.tuning.check.output_check import OutputCheck
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.experience.strategy import model_strategy
from tvm_droplet_ms.tuning.kernel_tuner import KernelTuner
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.run_context import RunContext
from tvm_droplet_ms.tuning.schedules import best_records, count_trials

from ..graph_timing import time_graphs
from .kernel_module import kernel_module, workloads_of
from .kernels import Kernel
from .price_file import PriceFile, StoredPrice, price_key


@dataclass
class WholeGraph:
    """A graph with its kernels."""

    kernels: ModelKernels

    @property
    def workloads(self) -> set[int]:
        """The structural hashes of the graph's tasks."""
        return {structural_hash(task.dispatched[0]) for task in self.kernels.tasks}


class InTurns(Priorities):
    """Chooses the task with the fewest batches next; ties go to the largest stake.

    A kernel with a hundred trials looks better than one with eight. So kernels to be compared get
    equal trials. A task ends when its trials are spent, whatever earlier runs found. A batch starts
    whenever any time is left.
    """

    def next(self, secs_left: float = math.inf, busy: Collection[int] = ()) -> int | None:
        """Choose the task of the next batch; see ``Priorities.next``."""
        open_tasks = {
            task: progress
            for task, progress in enumerate(self._tasks)
            if not progress.ended and task not in busy
        }
        return min(
            open_tasks,
            key=lambda task: (open_tasks[task].batches, -open_tasks[task].stake.secs),
            default=None,
        )


class Workbench:
    """Times kernels alone and in whole graphs. Close it after use.

    - ``directory``: the work directory, with the database of all trials and the file of prices.
    - ``target``: the target, with ``num-cores``.
    - ``note``: receives messages for the user.
    - ``seed``: the seed of all random choices.
    """

    def __init__(
        self, directory: Path, target: Target, threads: int, note: Callable[[str], None], seed: int
    ) -> None:
        register_schedule_rules()
        for name in mend_torn_end(directory):
            note(f"the last line of {name} was torn, as a killed run leaves it, and is cut off")
        self._target = target
        self._note = note
        self._prices = PriceFile(directory, f"TVM {tvm.__version__} {target_text(target)}")
        if self._prices.foreign:
            note(
                f"{self._prices.foreign} prices of {self._prices.path} are of other targets or "
                "versions of TVM and are not used"
            )
        context = RunContext(target, threads, directory, seed, tell=note)
        self._parts = context.phases
        self._seen: dict[int, ExtractedTask] = {}
        self._database = open_database(directory)
        self._tuner = KernelTuner(context, self._database)
        self._tuner.make_strategy, self._tuner.make_priorities = self._strategy, InTurns
        self._tuner.keep_measuring = True

    time_graphs = staticmethod(time_graphs)

    def close(self) -> None:
        """End the worker processes."""
        self._tuner.close()

    @property
    def trials(self) -> int:
        """The number of measured schedules."""
        return self._tuner.trials

    @property
    def secs_of(self) -> dict[str, float]:
        """The seconds spent in each part of the run."""
        return dict(self._parts.secs)

    def time(
        self, kernels: Sequence[Kernel], stop: StopRequest, trials: int
    ) -> dict[Kernel, float | None]:
        """Time each kernel alone, with the same number of trials.

        ``stop``: when to end. A running step is finished. Returns the seconds of the best schedule
        of each kernel; None for a kernel that cannot be scheduled. The result lacks kernels for
        which the time ran out. Kernels with prices in the directory are not timed again.
        """
        secs: dict[Kernel, float | None] = {}
        for is_warm in (False, True):
            # In one module, equal kernels become one function, whose mark holds for all its calls.
            alike = [kernel for kernel in kernels if kernel.is_warm == is_warm]
            if not alike:
                continue
            known, missing = self._known(alike, trials)
            secs |= known
            if missing and not stop.is_due:
                secs |= self._measured(missing, stop, trials)
        return secs

    def _known(
        self, kernels: Sequence[Kernel], trials: int
    ) -> tuple[dict[Kernel, float | None], list[Kernel]]:
        known: dict[Kernel, float | None] = {}
        missing = []
        for kernel, workloads in zip(kernels, self._workloads(kernels), strict=True):
            if workloads is None:
                self._note(f"{kernel} is no kernel of TVM's: its roofline is its price")
                known[kernel] = None
                continue
            stored = self._prices.prices.get(price_key(workloads))
            if stored is None or 0 < stored.trials < trials:
                missing.append(kernel)
            else:
                known[kernel] = stored.secs
                if stored.secs is None:
                    self._note_unpriced(kernel)
        return known, missing

    def _workloads(self, kernels: Sequence[Kernel]) -> list[list[int] | None]:
        # TVM accepts some calls without a legalization and then fails with errors of many types.
        # Retry kernels one by one, so that one failure does not affect the others.
        try:
            lowered = self._tuner.kernels(kernel_module(kernels)).lowered
            return workloads_of(lowered, len(kernels))
        except Exception as error:
            if len(kernels) == 1:
                self._note(f"{kernels[0]}: {last_line(error)}")
                return [None]
            return [self._workloads([kernel])[0] for kernel in kernels]

    def _measured(
        self, kernels: Sequence[Kernel], stop: StopRequest, trials: int
    ) -> dict[Kernel, float | None]:
        batch = self._tuner.kernels(kernel_module(kernels))
        self._tuner.compile_by(stop.deadline)
        self._tuner.pick(batch, stop)
        self._tune(batch, trials, stop)
        counts = count_trials(self._database, self._target)
        best = best_records(self._database, self._target)
        naive = {
            structural_hash(task.dispatched[0])
            for task in batch.tasks
            if task.task_name in batch.picks.unscheduled
        }
        secs: dict[Kernel, float | None] = {}
        for kernel, workloads in zip(kernels, workloads_of(batch.lowered, len(kernels))):
            assert workloads is not None, "it is known that it cannot be scheduled"
            least = min(counts.get(workload, 0) for workload in workloads)
            is_naive = not naive.isdisjoint(workloads)
            if least == 0 and not is_naive and stop.is_due:
                continue
            is_timed = not is_naive and all(workload in best for workload in workloads)
            if is_timed:
                secs[kernel] = sum(best[each][1] for each in workloads) / kernel.calls
            else:
                secs[kernel] = None
                self._note_unpriced(kernel)
            # A kernel with fewer trials has no more schedules, unless the run was interrupted.
            had = least if stop.is_due else trials
            self._prices.add(price_key(workloads), StoredPrice(had if least else 0, secs[kernel]))
        return secs

    def graphs(self, mods: Sequence[IRModule], stop: StopRequest) -> list[WholeGraph]:
        """Prepare whole graphs: list their kernels and give each one a first schedule.

        ``stop``: its deadline limits the time for picking first schedules. The results are in the
        order of ``mods``.
        """
        made = []
        for mod in mods:
            kernels = self._tuner.kernels(mod)
            self._tuner.compile_by(stop.deadline)
            self._tuner.pick(kernels, stop)
            made.append(WholeGraph(kernels))
        return made

    def tune(
        self,
        graph: WholeGraph,
        trials: int,
        stop: StopRequest,
        left_out: Collection[int] = frozenset(),
    ) -> bool:
        """Tune each kernel of a graph up to ``trials``, including its earlier trials.

        ``stop``: when to end. A running step is finished. ``left_out``: workloads that get no more
        trials. Returns whether there was time for all kernels.
        """
        self._tune(graph.kernels, trials, stop, left_out)
        return not stop.is_due

    def compile(self, graph: WholeGraph, check: OutputCheck) -> CompiledModel:
        """Compile a graph with the best schedules, except those that change the outputs."""
        compiled = graph.kernels.compile()
        if check.agrees(compiled):
            return compiled
        clock = SearchClock(StopRequest())
        return without_wrong_schedules(graph.kernels, check, clock, self._note) or compiled

    def kernel_secs(self, graph: WholeGraph) -> float:
        """The sum of the best times of a graph's kernels, each timed alone. Untimed ones are 0."""
        best = best_records(self._database, self._target)
        return sum(
            int(task.weight) * best[workload][1]
            for task in graph.kernels.tasks
            if (workload := structural_hash(task.dispatched[0])) in best
        )

    def _tune(
        self,
        kernels: ModelKernels,
        trials: int,
        stop: StopRequest,
        left_out: Collection[int] = frozenset(),
    ) -> None:
        counts = count_trials(self._database, self._target)
        lacking: dict[int, list[ExtractedTask]] = {}
        for task in kernels.tasks:
            workload = structural_hash(task.dispatched[0])
            self._seen.setdefault(workload, task)
            lack = trials - counts.get(workload, 0)
            if lack > 0 and workload not in left_out:
                lacking.setdefault(lack, []).append(task)
        for lack, tasks in sorted(lacking.items()):
            if not stop.is_due:
                self._tuner.tune(tasks, kernels, stop, None, lack, lack)

    def _strategy(
        self, tasks: Sequence[ExtractedTask], *arguments: Any, **options: Any
    ) -> DropletStrategy:
        # A fused kernel starts with the decisions of its unfused anchor, which was timed before.
        return model_strategy([*tasks, *self._seen.values()], *arguments, **options)

    def _note_unpriced(self, kernel: Kernel) -> None:
        self._note(f"{kernel} has no schedule that was timed: its roofline is its price")
