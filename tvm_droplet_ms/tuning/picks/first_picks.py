# SPDX-License-Identifier: Apache-2.0
"""Pick a schedule for every kernel before any trial: the best predicted sample.

A kernel without a record runs as naive loops, orders of magnitude too slow.
"""

import os
import time
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule import ExtractedTask

from ...compat import fast_tune_contexts
from ...measure.pool import TaskFailed, ThisProcess
from ...model.kernels.kernel_pass import why_not_schedulable
from ...search_strategy.logger import logger
from ...session.errors import last_line
from ...session.roofline import MachineRates, task_bound
from .pick_pace import HEAVY_SHARE, LEAST, MOST, PickPace, weighing
from .pick_sampling import PickRequest
from .pick_workers import PickWorkers, WarmStart
from .picks import FirstPick, FirstPicks, PickFile, StoredPick, restore, task_key
from .plain_schedule import plain_schedule

AHEAD = 4
"""The number of tasks that are submitted to the workers before waiting for the first result."""


def is_tunable(task: ExtractedTask) -> bool:
    """Return whether a schedule may change a task; TVM refuses to tune scheduled tasks."""
    return not is_scheduled(task) and why_not_tunable(task) is None


def is_scheduled(task: ExtractedTask) -> bool:
    """Return whether a task is already scheduled, or is a handwritten kernel."""
    holders = (task.mod, task.dispatched[0]["main"])
    return any((holder.attrs or {}).get("tirx.is_scheduled", False) for holder in holders)


def why_not_tunable(task: ExtractedTask) -> str | None:
    """Return why no schedule can change a task, as a message; None if one can."""
    return why_not_schedulable(task.dispatched[0]["main"])


def pick_schedules(
    tasks: Sequence[ExtractedTask],
    rates: MachineRates,
    *,
    warm_start: WarmStart,
    work_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
    pace: PickPace | None = None,
    workers: PickWorkers | None = None,
    measured: Collection[int] = (),
) -> FirstPicks:
    """Pick a schedule for every unscheduled task, the heaviest task first.

    The result names the tasks without a valid schedule and the reasons; these stay unscheduled.
    Each task has its own random generator, so its pick does not depend on other tasks.

    - ``work_dir``: where picks are kept; None to keep none. A pick from a hurried run is redone if
      there is time now and its workload is not in ``measured``.
    - ``warm_start``: the cost model that ranks samples, and known schedules, which are refitted and
      ranked too. Without a cost model, the first valid schedule is picked.
    - ``pace``: decides how many schedules there is time for. None for as many as are useful.
    - ``workers``: the processes that sample and rank, with the same cost model. None for this
      process.
    - ``measured``: the structural hashes of workloads with measured records.
    """
    tasks = [task for task in tasks if not is_scheduled(task)]
    reasons = {str(task.task_name): why_not_tunable(task) for task in tasks}
    tasks = [task for task in tasks if is_tunable(task)]
    bounds = [task_bound(task.dispatched[0], rates) or 0.0 for task in tasks]
    stakes = [int(task.weight) * bound for task, bound in zip(tasks, bounds, strict=True)]
    file = None if work_dir is None else PickFile(work_dir)
    stored = {} if file is None else file.read()
    local = PickWorkers(ThisProcess(), warm_start.prior)
    heavy = set(weighing(stakes, HEAVY_SHARE))
    picks = FirstPicks({name: reason for name, reason in reasons.items() if reason is not None})
    running: deque[_Sampled] = deque()
    settled: float | None = None

    def settle() -> None:
        nonlocal settled
        sampled = running.popleft()
        _settle(sampled, workers or local, local, picks, file)
        before, settled = settled, time.monotonic()
        # The first task includes the start of the processes.
        if pace is not None and before is not None:
            pace.done(2 * sampled.request.count, settled - before)

    heaviest: dict[str, int] = {}
    for index in sorted(range(len(tasks)), key=lambda index: -stakes[index]):
        heaviest.setdefault(task_key(tasks[index].dispatched[0], tasks[index].target), index)
    with fast_tune_contexts():
        kept = {}
        for key, index in heaviest.items():
            has_model = warm_start.model(tasks[index].target) is not None
            pick = restore(tasks[index].dispatched[0], stored.get(key), has_model)
            if pick is not None:
                kept[key] = pick
        is_ample = pace is None or pace.is_ample
        open_keys = {
            key
            for key in heaviest
            if key not in kept
            or (is_ample and stored[key].is_late and structural_hash(kept[key].mod) not in measured)
        }
        if pace is not None:
            pace.expect(len(open_keys))
        for key, index in heaviest.items():
            task = tasks[index]
            mod, target = task.dispatched[0], task.target
            if key not in open_keys:
                picks.keep(kept[key], target)
                continue
            has_model = warm_start.model(target) is not None
            wish = MOST if index in heavy else LEAST
            count = wish
            if pace is not None:
                # The cost model ranks as many known schedules in addition.
                count = -(-pace.count(2 * wish, is_heavy=index in heavy) // 2)
            if count <= 1 and key in kept:
                picks.keep(kept[key], target)
                continue
            if not count:
                plain = None if pace is None or pace.is_over else plain_schedule(mod)
                if plain is None:
                    picks.unscheduled[str(task.task_name)] = "the time is too short to pick one"
                else:
                    picks.keep(FirstPick(mod, plain.trace, (), ()), target)
                continue
            late = count == 1 < wish
            request = PickRequest(mod, target, count, seed, warm_start.known)
            future = (workers or local).submit(key, request, has_model)
            running.append(_Sampled(task.task_name, key, request, has_model, late, future))
            if len(running) >= (AHEAD if workers else 1):
                settle()
        while running:
            settle()
    for name, reason in picks.unscheduled.items():
        logger.info("%s: no valid schedule was found, so that it stays naive: %s", name, reason)
    return picks


@dataclass(frozen=True)
class _Sampled:
    """A task that is being sampled."""

    name: str
    key: str
    request: PickRequest
    is_asked: bool
    is_late: bool
    future: "Future[StoredPick]"


def _settle(
    sampled: _Sampled,
    sampler: PickWorkers,
    local: PickWorkers,
    picks: FirstPicks,
    file: PickFile | None,
) -> None:
    """Wait for a pick, and keep it or the reason for its failure."""
    try:
        try:
            line = sampled.future.result()
        except TaskFailed as failure:
            if failure.failure.is_machinery:
                line = local.submit(sampled.key, sampled.request, sampled.is_asked).result()
            elif failure.kind == "timeout":
                line = _in_haste(sampled, sampler)
            else:
                raise
    # TVM raises many error types if it cannot make a design space or extract features. Such a task
    # must not affect the others.
    except Exception as error:
        picks.unscheduled[sampled.name] = last_line(error)
        return
    pick = restore(sampled.request.mod, line, has_model=False)
    if pick is None:
        picks.unscheduled[sampled.name] = "its pick does not replay"
        return
    picks.keep(pick, sampled.request.target)
    if file is not None:
        file.append([replace(line, is_late=sampled.is_late)])


def _in_haste(sampled: _Sampled, sampler: PickWorkers) -> StoredPick:
    """Pick for a task whose samples take seconds each: the first valid one, or a plain one."""
    plain = plain_schedule(sampled.request.mod)
    if sampled.request.count > 1 or plain is None:
        single = replace(sampled.request, count=1)
        try:
            return sampler.submit(sampled.key, single, False).result()
        except TaskFailed as failure:
            if failure.kind != "timeout" or plain is None:
                raise
    return FirstPick(sampled.request.mod, plain.trace, (), ()).to_line(sampled.key)
