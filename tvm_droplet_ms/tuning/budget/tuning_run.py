# SPDX-License-Identifier: Apache-2.0
"""Tune the tasks of a model until the clock runs out."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule import ExtractedTask, SpaceGenerator, TuneContext
from tvm.s_tir.meta_schedule.builder import Builder
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.measure_callback import (
    AddToDatabase,
    MeasureCallback,
    RemoveBuildArtifact,
)
from tvm.s_tir.meta_schedule.runner import Runner
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy
from tvm.s_tir.meta_schedule.tune import tune_tasks
from tvm.s_tir.meta_schedule.utils import fork_seed

from ...compat import fast_tune_contexts
from ...cost_model.training_data import target_text
from ...search_strategy.byte_products.dot_space import sound_space
from ...search_strategy.logger import logger
from ...session.roofline import MachineRates, measure_machine, task_bound
from ..picks.first_picks import is_scheduled, why_not_tunable
from ..schedules.application import best_records
from .priorities import Priorities, Stake
from .scheduler import ClockScheduler, TaskEffort, TellClock, TuningClock

_UNLIMITED = 2**30
"""The trials where only the clock ends the run."""


@dataclass(frozen=True)
class TaskRow:
    """The outcome of one task.

    - ``weight``: how often the model runs its kernel.
    - ``bound_secs``: its roofline in seconds.
    - ``best_secs``: its best time in seconds, earlier runs included; infinity where it has none.
    - ``effort``: what this run spent on it.
    """

    name: str
    weight: int
    bound_secs: float
    best_secs: float
    effort: TaskEffort


@dataclass(frozen=True)
class TuningRun:
    """The outcome of a run.

    ``rows``: the tasks, in their order. ``why_ended``: "time", "trials", "stopped" or "converged".
    """

    rows: tuple[TaskRow, ...]
    why_ended: str

    @property
    def trials(self) -> int:
        """The candidates that were measured."""
        return sum(row.effort.trials for row in self.rows)


def tune_tasks_by_clock(
    tasks: Sequence[ExtractedTask],
    *,
    work_dir: str,
    database: Database,
    builder: Builder,
    runner: Runner,
    strategy: SearchStrategy,
    deadline: float = math.inf,
    max_trials: int | None = None,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 8,
    space: SpaceGenerator | str = "post-order-apply",
    rates: MachineRates | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    make_priorities: Callable[..., Priorities] = Priorities,
    callbacks: Sequence[MeasureCallback] = (),
    num_threads: int = 1,
    seed: int = 0,
) -> TuningRun:
    """Tune the tasks of a model until the clock runs out.

    - ``tasks``: the tasks. Those that are scheduled already are left out.
    - ``work_dir``: the directory of the run, as ``tune_tasks`` takes it.
    - ``database``: records of earlier runs, which the run continues from, and those of this one.
    - ``builder``, ``runner``: what builds and what times the candidates.
    - ``strategy``: the strategy; each task gets a clone of it.
    - ``deadline``: when to end, by `clock`. It is exceeded by no more than a batch.
    - ``max_trials``: the most trials of all tasks together; exceeded by less than a batch. None for
      no limit.
    - ``max_trials_per_task``: the most trials of a task. None for no limit.
    - ``num_trials_per_iter``: the most trials of a batch.
    - ``space``: the design space, as ``TuneContext`` takes it.
    - ``rates``: the machine's rates. Defaults to those measured on this machine.
    - ``should_stop``: asked before each batch; once it says True, the run ends.
    - ``clock``: tells the time in seconds.
    - ``make_priorities``: makes the rule that chooses the task of each batch; called as
      ``Priorities``.
    - ``callbacks``: told each batch, after TVM's own.
    - ``num_threads``: the threads of each ``TuneContext``.
    - ``seed``: seed of all random choices.

    Returns what became of each task. Raises ``ValueError`` if there is neither a deadline nor a
    limit of the trials.
    """
    if math.isinf(deadline) and max_trials is None:
        raise ValueError("neither deadline nor max_trials is given: the run would not end")
    rates = measure_machine() if rates is None else rates
    tasks, bounds = _with_bounds(tasks, rates)
    if not tasks or max_trials == 0:
        return TuningRun((), "trials" if tasks else "converged")
    priorities = make_priorities(
        [Stake(float(task.weight), bound) for task, bound in zip(tasks, bounds, strict=True)]
    )
    _know_records(priorities, tasks, database)
    timing = TuningClock(
        priorities, len(tasks), deadline=deadline, should_stop=should_stop, clock=clock
    )
    with fast_tune_contexts():
        contexts = [
            TuneContext(
                task.dispatched[0],
                target=task.target,
                space_generator=sound_space(space, task.dispatched[0], task.target),
                search_strategy=strategy,
                task_name=task.task_name,
                rand_state=rand_state,
                num_threads=num_threads,
            ).clone()
            for task, rand_state in zip(tasks, fork_seed(seed, n=len(tasks)), strict=True)
        ]
        tune_tasks(
            tasks=contexts,
            task_weights=[float(task.weight) for task in tasks],
            work_dir=work_dir,
            max_trials_global=_UNLIMITED if max_trials is None else max_trials,
            max_trials_per_task=(
                _UNLIMITED if max_trials_per_task is None else max_trials_per_task
            ),
            num_trials_per_iter=num_trials_per_iter,
            builder=builder,
            runner=runner,
            database=database,
            cost_model="none",
            measure_callbacks=[
                AddToDatabase(),
                TellClock(timing),
                RemoveBuildArtifact(),
                *callbacks,
            ],
            task_scheduler=ClockScheduler(timing),
        )
    rows = tuple(
        TaskRow(task.task_name, int(task.weight), bound, priorities.best_secs(index), effort)
        for index, (task, bound, effort) in enumerate(
            zip(tasks, bounds, timing.efforts, strict=True)
        )
    )
    return TuningRun(rows, timing.why_ended or "trials")


def _with_bounds(
    tasks: Sequence[ExtractedTask], rates: MachineRates
) -> tuple[list[ExtractedTask], list[float]]:
    """The tasks that can be tuned, and their rooflines in seconds."""
    tunable, bounds = [], []
    for task in tasks:
        if is_scheduled(task):
            continue
        reason = why_not_tunable(task)
        bound = None if reason else task_bound(task.dispatched[0], rates)
        if bound is None:
            # TVM's scheduler counts the work of each task too, and fails with all of them.
            reason = reason or "TVM cannot count its work"
            logger.warning("%s is not tuned: %s", task.task_name, reason)
            continue
        tunable.append(task)
        bounds.append(bound)
    return tunable, bounds


def _know_records(
    priorities: Priorities, tasks: Sequence[ExtractedTask], database: Database
) -> None:
    """Tell the rule the best times of earlier runs."""
    best: dict[str, dict[int, tuple[TuningRecord, float]]] = {}
    for index, task in enumerate(tasks):
        target = target_text(task.target)
        if target not in best:
            best[target] = best_records(database, task.target)
        found = best[target].get(structural_hash(task.dispatched[0]))
        if found is not None:
            priorities.know(index, found[1])
