# SPDX-License-Identifier: Apache-2.0
"""The kernels of a prepared model: their tasks, their schedules, and their compilation."""

import math
import time
from collections.abc import Collection, Mapping

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import Database, MemoryDatabase, TuningRecord
from tvm.target import Target

from ..search_strategy.published.candidates import mean, valid_secs
from .compile.compiled_model import CompiledModel
from .compile.kernel_objects import KernelObjects
from .compile.lowering import ModelBuilder, lower
from .compile.naming import with_suffix
from .picks.picks import FirstPick, FirstPicks
from .picks.plain_schedule import plain_schedule
from .schedules import (
    NEAR,
    best_records,
    by_workload,
    database_of,
    database_to_apply,
    record_of,
    workloads_of,
)


class ModelKernels:
    """The kernels of a model and their current schedules.

    - ``database``: measured records, which are looked up at every compilation.
    - ``builder``: compiles the model and caches compiled kernels. None for one in this process.
    - ``suffix``: appended to the kernel names. ``is_reference``: see ``lower``.
    - ``untouched``: names of tasks that stay unscheduled because their schedules gave other
      outputs.
    - ``lost``: names of tasks whose measured schedule the compiler took too long for, or rejected.
    - ``preferred``: measured schedules to take instead of the best ones while they are about as
      fast, by the structural hash of the workload.
    - ``chosen``: schedules to take regardless of measurements, by the same key.
    """

    def __init__(
        self,
        graph: IRModule,
        target: Target,
        database: Database,
        builder: ModelBuilder | None = None,
        *,
        suffix: str = "",
        is_reference: bool = False,
    ) -> None:
        self.lowered = with_suffix(lower(graph, target, is_reference=is_reference), suffix)
        self._suffix = suffix
        self.tasks = list(ms.relax_integration.extract_tasks(self.lowered, target))
        self.picks = FirstPicks()
        self.untouched: set[str] = set()
        self.lost: set[str] = set()
        self.preferred: dict[int, TuningRecord] = {}
        self.chosen: dict[int, TuningRecord] = {}
        self._target = target
        self._database = database
        self._builder = builder or ModelBuilder(KernelObjects(target), target)

    def schedules(self) -> MemoryDatabase:
        """Return the schedule of each task: chosen, preferred, the best measured one, or picked."""
        database = database_to_apply(self._database, self.picks, self._target)
        records = by_workload(database)
        for key in records.keys() & self.preferred.keys():
            kept, best = self.preferred[key], records[key]
            if mean(valid_secs(kept.run_secs)) <= NEAR * mean(valid_secs(best.run_secs)):
                records[key] = kept
        records.update((key, self.chosen[key]) for key in records.keys() & self.chosen.keys())
        for task in self.tasks:
            if task.task_name in self.untouched:
                records.pop(structural_hash(task.dispatched[0]), None)
        return database_of(records.values())

    def compile(
        self, schedules: Database | None = None, late_at: float = math.inf
    ) -> CompiledModel:
        """Compile the model with the given schedules; None for the current ones."""
        schedules = self.schedules() if schedules is None else schedules
        return CompiledModel(self._builder.build(self.lowered, schedules, late_at))

    def forget_weights(self) -> None:
        """Drop the packed weights that are kept for the next executable."""
        self._builder.forget_weights()

    def go_plain(
        self, names: Collection[str], until: float = math.inf
    ) -> tuple[list[str], list[str]]:
        """Give the tasks of some functions the plain schedule, which compiles quickly.

        Tasks without one, and those whose turn is after ``until``, in the time of
        ``time.monotonic``, are left as by ``leave``. Returns the names of the tasks with plain
        schedules, and of those that are left.
        """
        plain: list[str] = []
        left: list[ms.ExtractedTask] = []
        measured = best_records(self._database, self._target)
        for task in self._tasks_of(names):
            mod, name = task.dispatched[0], str(task.task_name)
            schedule = plain_schedule(mod) if time.monotonic() < until else None
            if schedule is None:
                left.append(task)
                continue
            plain.append(name)
            pick = FirstPick(mod, schedule.trace, (), ())
            self.picks.keep(pick, self._target)
            if structural_hash(mod) in measured:
                self.lost.add(name)
                self.chosen[structural_hash(mod)] = record_of(pick, self._target)
        return plain, self._leave(left)

    def leave(self, names: Collection[str]) -> list[str]:
        """Drop the picks of the tasks of some functions; return the task names.

        The tasks may still be measured with other schedules. A task with a measured schedule stays
        unscheduled from now on. Weight-packing functions have no task: if ``names`` has only such
        functions, the picks of all tasks are dropped.
        """
        return self._leave(self._tasks_of(names))

    def _leave(self, left: Collection[ms.ExtractedTask]) -> list[str]:
        measured = best_records(self._database, self._target)
        for task in left:
            mod = task.dispatched[0]
            if structural_hash(mod) in measured:
                self.untouched.add(str(task.task_name))
                self.lost.add(str(task.task_name))
            self.picks.keep(FirstPick(mod, Schedule(mod).trace, (), ()), self._target)
        return [str(task.task_name) for task in left]

    def go_back(self, names: Collection[str], records: Mapping[int, TuningRecord]) -> list[str]:
        """Fix the tasks of some functions to earlier schedules, regardless of measurements.

        ``records``: the schedules by the structural hash of the workload. Tasks without a record
        stay unscheduled. If no function has a task, this applies to all tasks. Returns the task
        names.
        """
        tasks = self._tasks_of(names)
        for task in tasks:
            key = structural_hash(task.dispatched[0])
            if key in records:
                self.chosen[key] = records[key]
            else:
                self.untouched.add(str(task.task_name))
        return [str(task.task_name) for task in tasks]

    def _tasks_of(self, names: Collection[str]) -> list[ms.ExtractedTask]:
        """Return the tasks of some functions; all tasks if none of the functions has one."""
        found = set(workloads_of(self.lowered, names).values())
        return [
            task for task in self.tasks if not found or structural_hash(task.dispatched[0]) in found
        ]

    def reference(self, graph: IRModule) -> "ModelKernels":
        """Return TVM's own kernels of another graph of the same model, without schedules."""
        other = ModelKernels(
            graph,
            self._target,
            self._database,
            self._builder,
            suffix=self._suffix,
            is_reference=True,
        )
        other.untouched = {str(task.task_name) for task in other.tasks}
        return other
