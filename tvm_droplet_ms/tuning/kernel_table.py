# SPDX-License-Identifier: Apache-2.0
"""Tables of a model's kernels: of a tuned model, and of one that is being tuned."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.target import Target

from ..display.model_state import ModelKernel
from ..model.kernels.winograd.winograd import implementation_of
from ..session.roofline import MachineRates, task_bound, task_work
from .model_kernels import ModelKernels
from .picks.first_picks import is_tunable
from .result import KernelRow
from .schedules import best_records, count_trials, is_made_up, workloads_of


def kernel_rows(
    kernels: ModelKernels,
    kernel_secs: Mapping[str, Sequence[float]],
    database: Database,
    target: Target,
    rates: MachineRates,
) -> tuple[KernelRow, ...]:
    """Describe the kernels of a model, the slowest first.

    ``kernel_secs``: the seconds of each function inside the model in each run. Several functions
    may be one task.
    """
    secs_of = task_secs(kernels, kernel_secs)
    trials = count_trials(database, target)
    schedules = kernels.schedules()
    rows = []
    for task in kernels.tasks:
        mod = task.dispatched[0]
        key = structural_hash(mod)
        secs = secs_of.get(str(task.task_name), 0.0)
        weight = int(task.weight)
        bound = task_bound(mod, rates) or 0.0
        rows.append(
            KernelRow(
                name=str(task.task_name),
                weight=weight,
                secs=secs,
                gflops=weight * _written_flops(mod) / secs / 1e9 if secs else 0.0,
                roofline_share=weight * bound / secs if secs else 0.0,
                trials=trials[key],
                schedule=_origin(schedules, mod),
                workload=str(key),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.secs))


def begun_kernels(
    kernels: ModelKernels, rows: Sequence[KernelRow], database: Database, target: Target
) -> dict[int, ModelKernel]:
    """Describe the tunable kernels at the begin of a search, by the hash of their workloads.

    ``rows``: the kernels of the first executable.

    The first time of a kernel is that of its first schedule, measured alone as the search does. If
    it was not measured, the time inside the first executable takes its place.
    """
    best = best_records(database, target)
    picks = {structural_hash(pick.mod): pick for pick in kernels.picks}
    row_of = {row.name: row for row in rows if row.roofline_share}
    found = {}
    for task in kernels.tasks:
        row = row_of.get(str(task.task_name))
        if row is None or row.name in kernels.untouched or not is_tunable(task):
            continue
        key = structural_hash(task.dispatched[0])
        pick = picks.get(key)
        picked = math.inf if pick is None or pick.secs is None else pick.secs
        first = picked if pick is None or pick.replaced_secs is None else pick.replaced_secs
        if key in best:
            first = min(first, best[key][1])
        inside = row.secs / row.weight
        if math.isinf(first):
            first = inside
        bound = row.roofline_share * inside
        found[key] = ModelKernel(row.weight, bound, first, min(first, picked), row.trials)
    return found


def schedules_as_python(kernels: ModelKernels) -> dict[str, str]:
    """Return the schedules of a model's kernels as replayable Python, by kernel name."""
    schedules = kernels.schedules()
    return {
        str(task.task_name): str(record.trace)
        for task in kernels.tasks
        for record in _applied(schedules, task.dispatched[0])
    }


def task_secs(
    kernels: ModelKernels, kernel_secs: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    """Return the median seconds of each task in a run of the model, by task name."""
    secs_of = secs_by_workload(kernels.lowered, kernel_secs)
    found: dict[str, float] = {}
    for task in kernels.tasks:
        secs = secs_of.get(structural_hash(task.dispatched[0]))
        if secs:
            found[str(task.task_name)] = median(secs)
    return found


def secs_by_workload(
    lowered: IRModule, kernel_secs: Mapping[str, Sequence[float]]
) -> dict[int, list[float]]:
    """Return each workload's seconds in each run, over all its functions, by structural hash."""
    secs: dict[int, list[float]] = {}
    for name, key in workloads_of(lowered, kernel_secs).items():
        before = secs.get(key, [0.0] * len(kernel_secs[name]))
        secs[key] = [a + b for a, b in zip(before, kernel_secs[name], strict=True)]
    return secs


def _written_flops(mod: IRModule) -> float:
    """Return the FLOPs of a kernel as the model defines it: a convolution counts as direct."""
    what = implementation_of(mod)
    if what is not None:
        return float(what._replace(tile=None).flops)
    # TVM raises many error types for statements that it cannot count.
    try:
        return task_work(mod).flops
    except Exception:
        return 0.0


def _applied(schedules: Database, mod: IRModule) -> list[TuningRecord]:
    """Return a kernel's schedule, if any. TVM finds no records with an empty trace."""
    return list(schedules.get_top_k(schedules.commit_workload(mod), 1))


def _origin(schedules: Database, mod: IRModule) -> str:
    for record in _applied(schedules, mod):
        return "predicted" if is_made_up(record) else "measured"
    return "untouched"
