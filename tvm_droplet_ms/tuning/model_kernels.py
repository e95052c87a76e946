# SPDX-License-Identifier: Apache-2.0
"""The kernels of a prepared model: their tasks, their schedules, and what is compiled of them."""

import math
import os
from collections.abc import Callable, Collection, Mapping

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import Database, MemoryDatabase, TuningRecord
from tvm.target import Target

from ..search_strategy.published.candidates import mean, valid_secs
from ..session.roofline import MachineRates
from .compile.compiled_model import CompiledModel
from .compile.kernel_objects import KernelObjects
from .compile.lowering import ModelBuilder, lower
from .compile.naming import with_suffix
from .experience.strategy import Experience
from .picks.first_picks import pick_schedules
from .picks.pick_pace import PickPace
from .picks.pick_workers import PickWorkers
from .picks.picks import FirstPick, FirstPicks
from .schedules import (
    NEAR,
    best_records,
    by_workload,
    database_of,
    database_to_apply,
    workloads_of,
)

LowerGraph = Callable[[IRModule, Target], IRModule]


class ModelKernels:
    """The kernels of a model, with the schedules that they have now.

    - ``database``: measured records, which are looked up whenever something is compiled.
    - ``builder``: compiles the model, and keeps what it compiled. None for one in this process.
    - ``suffix``: at the names of its kernels.
    - ``untouched``: names of tasks that are not scheduled, because their schedules gave other
      outputs.
    - ``preferred``: by the structural hash of the workload: a measured schedule to take instead of
      the best one, for as long as it is about as fast.
    - ``chosen``: the same, whatever is measured.
    """

    def __init__(
        self,
        graph: IRModule,
        target: Target,
        database: Database,
        builder: ModelBuilder | None = None,
        *,
        lower_graph: LowerGraph = lower,
        suffix: str = "",
    ) -> None:
        self.lowered = with_suffix(lower_graph(graph, target), suffix)
        self._suffix = suffix
        self.tasks = list(ms.relax_integration.extract_tasks(self.lowered, target))
        self.picks = FirstPicks()
        self.untouched: set[str] = set()
        self.preferred: dict[int, TuningRecord] = {}
        self.chosen: dict[int, TuningRecord] = {}
        self._target = target
        self._database = database
        self._builder = builder or ModelBuilder(KernelObjects(target), target)

    def pick(
        self,
        work_dir: str | os.PathLike[str],
        rates: MachineRates,
        seed: int,
        pace: PickPace | None = None,
        workers: PickWorkers | None = None,
        experience: Experience | None = None,
    ) -> None:
        """Pick a schedule for every task; see ``pick_schedules``."""
        experience = experience or Experience()
        self.picks = pick_schedules(
            self.tasks,
            work_dir=work_dir,
            rates=rates,
            seed=seed,
            pace=pace,
            workers=workers,
            prior=experience.prior,
            known=experience.known,
            measured=best_records(self._database, self._target),
        )

    def schedules(self) -> MemoryDatabase:
        """The schedule of each task: chosen, preferred, the best that was measured, or picked."""
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

    def choose(self, schedules: Database) -> None:
        """Take the schedules of an earlier call of ``schedules``, whatever has been measured."""
        self.chosen = by_workload(schedules)
        self.untouched |= {
            str(task.task_name)
            for task in self.tasks
            if structural_hash(task.dispatched[0]) not in self.chosen
        }

    def compile(
        self, schedules: Database | None = None, late_at: float = math.inf
    ) -> CompiledModel:
        """Compile the model with some schedules; None for the best that are known."""
        schedules = self.schedules() if schedules is None else schedules
        return CompiledModel(self._builder.build(self.lowered, schedules, late_at))

    def leave(self, names: Collection[str]) -> list[str]:
        """Leave the picks of some functions' tasks; returns the tasks' names.

        The tasks may be measured with other schedules. One whose schedule was measured is not
        scheduled any more. What packs a weight is no kernel of the graph: where nothing else is
        named, all tasks are left.
        """
        left = self._tasks_of(names)
        measured = best_records(self._database, self._target)
        for task in left:
            mod = task.dispatched[0]
            if structural_hash(mod) in measured:
                self.untouched.add(str(task.task_name))
            self.picks.keep(FirstPick(mod, Schedule(mod).trace, (), ()), self._target)
        return [str(task.task_name) for task in left]

    def go_back(self, names: Collection[str], records: Mapping[int, TuningRecord]) -> list[str]:
        """Choose earlier schedules for some functions' tasks, whatever has been measured.

        ``records``: the schedules, by the structural hash of the workload; a task without one is
        not scheduled. Where no task is named, all are. Returns the tasks' names.
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
        """The tasks of some functions; all where what they name is no task's."""
        found = set(workloads_of(self.lowered, names).values())
        return [
            task for task in self.tasks if not found or structural_hash(task.dispatched[0]) in found
        ]

    def variant(self, graph: IRModule, lower_graph: LowerGraph) -> "ModelKernels":
        """The kernels of another graph of the same model, without schedules."""
        other = ModelKernels(
            graph,
            self._target,
            self._database,
            self._builder,
            lower_graph=lower_graph,
            suffix=self._suffix,
        )
        other.untouched = {str(task.task_name) for task in other.tasks}
        return other
