# SPDX-License-Identifier: Apache-2.0
"""Leaves out the schedules that make the outputs of a model differ."""

from collections.abc import Callable, Collection, Mapping

from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule.database import TuningRecord

from ..compile.compiled_model import CompiledModel
from ..model_kernels import ModelKernels
from ..schedules.application import by_workload, database_of
from .diagnosis import SearchClock, TooLate, all_changes
from .output_check import OutputCheck


def without_wrong_schedules(
    kernels: ModelKernels,
    check: OutputCheck,
    clock: SearchClock,
    note: Callable[[str], None],
    right: Mapping[int, TuningRecord] | None = None,
) -> CompiledModel | None:
    """Compile a model without the schedules that make its outputs differ.

    They are found by bisection. Where the time is too short for that, all are left out.

    - ``kernels``: the kernels. Those whose schedules are left out are `untouched` from now on, or
      have a schedule that is `chosen`.
    - ``check``: what the outputs are compared with.
    - ``clock``: the time of the search.
    - ``note``: is told what was left out.
    - ``right``: schedules to take instead, by the structural hash of the workload. None for none.

    Returns a model whose outputs agree; None where they differ without any of the schedules.
    """
    right = right or {}
    schedules = by_workload(kernels.schedules())
    tasks = [
        (str(task.task_name), key)
        for task in kernels.tasks
        if (key := structural_hash(task.dispatched[0])) in schedules
        and not (key in right and _same(right[key], schedules[key]))
    ]

    def compiled(kept: Collection[int]) -> CompiledModel:
        taken = {**schedules, **right}
        taken.update((tasks[index][1], schedules[tasks[index][1]]) for index in kept)
        for index, (_, key) in enumerate(tasks):
            if index not in kept and key not in right:
                del taken[key]
        return kernels.compile(database_of(taken.values()))

    def agrees(kept: list[int]) -> bool:
        with clock.step():
            return check.agrees(compiled(kept))

    without = compiled(())
    if not check.agrees(without):
        return None
    try:
        wrong = all_changes(len(tasks), agrees)
        result = compiled([index for index in range(len(tasks)) if index not in wrong])
        reason = ""
    except TooLate:
        wrong, result = list(range(len(tasks))), without
        reason = ", because the time was too short to find which"
    for name, key in (tasks[index] for index in wrong):
        if key in right:
            kernels.chosen[key] = right[key]
        else:
            kernels.untouched.add(name)
    kept = "keep their first ones" if right else "are left untouched"
    if reason:
        note(f"schedules gave other outputs: all kernels {kept}{reason}")
    else:
        names = ", ".join(tasks[index][0] for index in sorted(wrong))
        note(f"schedules of {names} gave other outputs: these {kept}")
    return result


def _same(one: TuningRecord, other: TuningRecord) -> bool:
    return str(one.trace) == str(other.trace)
