# SPDX-License-Identifier: Apache-2.0
"""Tune the tasks of a model until the time runs out."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tvm_ffi import structural_hash

from tvm.s_tir import ScheduleError
from tvm.s_tir.meta_schedule import ExtractedTask, TuneContext
from tvm.s_tir.meta_schedule.utils import fork_seed

from ...compat import fast_tune_contexts
from ...design_space.sound_space import FROM_TARGET, sound_space
from ...search_strategy.logger import logger
from ...session.roofline import MachineRates, task_bound
from ..picks.first_picks import is_scheduled, why_not_tunable
from ..schedules import best_records
from .loop import Limits, TuningSetup, measure
from .priorities import Priorities, Stake
from .scheduler import TaskEffort, TuningClock


@dataclass(frozen=True)
class TaskRow:
    """The outcome of one task; its best time includes earlier known times."""

    name: str
    best_secs: float
    effort: TaskEffort


@dataclass(frozen=True)
class TuningRun:
    """The outcome of a run; it ended by "time", "trials", "converged" or ``Limits.should_stop``."""

    rows: tuple[TaskRow, ...]
    why_ended: str

    @property
    def trials(self) -> int:
        """Number of measured candidates."""
        return sum(row.effort.trials for row in self.rows)


def tune_tasks_by_clock(
    tasks: Sequence[ExtractedTask],
    setup: TuningSetup,
    limits: Limits,
    *,
    rates: MachineRates,
    make_priorities: Callable[..., Priorities] = Priorities,
    first_secs: Mapping[int, float] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TuningRun:
    """Tune the tasks of a model until the time runs out.

    Tasks that are already scheduled are skipped. The run continues from the records of the
    database. Raises ``ValueError`` if there is neither a deadline nor a limit on the trials.

    - ``make_priorities``: makes the rule that chooses the task of each batch; called as
      ``Priorities``.
    - ``first_secs``: the current seconds per call of the kernels, by the structural hashes of their
      workloads.
    """
    if math.isinf(limits.deadline) and limits.trials is None:
        raise ValueError("neither deadline nor max_trials is given: the run would not end")
    tasks, bounds = _with_bounds(tasks, rates)
    if not tasks or limits.trials == 0:
        return TuningRun((), "trials" if tasks else "converged")
    weights = [float(task.weight) for task in tasks]
    priorities = make_priorities(list(map(Stake, weights, bounds)))
    best = best_records(setup.database, tasks[0].target)
    for index, task in enumerate(tasks):
        key = structural_hash(task.dispatched[0])
        if key in best:
            priorities.know(index, best[key][1])
        if first_secs and key in first_secs:
            priorities.know(index, first_secs[key])
    timing = TuningClock(
        priorities,
        len(tasks),
        deadline=limits.deadline,
        should_stop=limits.should_stop,
        clock=clock,
    )
    with fast_tune_contexts():
        contexts = [
            setup.context(
                task.dispatched[0],
                task.target,
                task_name=task.task_name,
                rand_state=rand_state,
                num_threads=1,
            )
            for task, rand_state in zip(tasks, fork_seed(setup.seed, n=len(tasks)), strict=True)
        ]
    measure(contexts, weights, timing, setup, limits)
    rows = tuple(
        TaskRow(task.task_name, priorities.best_secs(index), effort)
        for index, (task, effort) in enumerate(zip(tasks, timing.efforts, strict=True))
    )
    return TuningRun(rows, timing.why_ended or "trials")


def _with_bounds(
    tasks: Sequence[ExtractedTask], rates: MachineRates
) -> tuple[list[ExtractedTask], list[float]]:
    """Return the tunable tasks and their rooflines in seconds."""
    tunable, bounds = [], []
    for task in tasks:
        if is_scheduled(task):
            continue
        reason = why_not_tunable(task)
        bound = None if reason else task_bound(task.dispatched[0], rates)
        if bound is None:
            # TVM's scheduler also counts the work of each task, and would fail for all tasks.
            reason = reason or "TVM cannot count its work"
            logger.warning("%s is not tuned: %s", task.task_name, reason)
            continue
        tunable.append(task)
        bounds.append(bound)
    return tunable, bounds


def with_design_space(
    tasks: Sequence[ExtractedTask], space: str = FROM_TARGET
) -> tuple[list[ExtractedTask], list[str]]:
    """Return the tasks for which TVM's rules make design spaces, and the names of the others.

    ``ReverseComputeAt`` raises in ``multi_level_tiling.cc`` if the consumer of a sum also reads
    another result, as in ``x - mean(x, 0) - mean(x - mean(x, 0), 1)``.
    """
    kept, names = [], []
    with fast_tune_contexts():
        for task in tasks:
            mod = task.dispatched[0]
            context = TuneContext(
                mod,
                target=task.target,
                space_generator=sound_space(space, mod, task.target),
                rand_state=1,
                num_threads=1,
            )
            try:
                context.generate_design_space()
            except ScheduleError:
                names.append(str(task.task_name))
            else:
                kept.append(task)
    return kept, names


def in_whole_batches(
    run: Callable[[int, int | None], TuningRun], size: int, trials: int | None
) -> tuple[int, str]:
    """Run until the trials are spent; a remainder of less than a batch is its own batch.

    ``run`` takes the batch size and a minimum number of schedules. It measures batches until it
    reaches the minimum, which is low enough that a full last batch does not exceed the trials.
    Returns the number of measured schedules, and why the last run ended.
    """
    if trials is None:
        only = run(size, None)
        return only.trials, only.why_ended
    done = 0
    while True:
        size = max(1, min(size, trials - done))
        last = run(size, max(0, trials - done - size + 1))
        done += last.trials
        if done >= trials or not last.trials or last.why_ended != "trials":
            return done, last.why_ended
