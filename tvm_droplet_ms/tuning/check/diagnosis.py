# SPDX-License-Identifier: Apache-2.0
"""Find the schedules or passes that change a model's outputs, by bisection within a time limit."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule.database import TuningRecord

from ...session.roofline import naive_secs
from ...session.stop import StopRequest
from ..compile.compiled_model import CompiledModel
from ..model_kernels import ModelKernels
from ..schedules import by_workload, database_of, workloads_of
from .kernel_by_kernel import different_kernels, results_of
from .output_check import OutputCheck


class TooLate(Exception):
    """Raised when a search runs out of time."""


class SearchClock:
    """The time limit of a search, checked against the duration of its steps."""

    def __init__(self, stop: StopRequest, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop = stop
        self._clock = clock
        self._longest = 0.0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time a step; raise ``TooLate`` if the longest step so far would no longer fit."""
        if self._stop.is_due or self._stop.left < self._longest:
            raise TooLate
        start = self._clock()
        yield
        self._longest = max(self._longest, self._clock() - start)


def first_change(count: int, agrees: Callable[[int], bool], known: int = 0) -> int:
    """Return the index of the item that makes the outputs disagree, by bisection.

    ``agrees``: whether the outputs agree with only the first n items. It must be True for ``known``
    items, and False for all ``count`` items.
    """
    right, wrong = known, count
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if agrees(middle):
            right = middle
        else:
            wrong = middle
    return wrong - 1


def all_changes(count: int, agrees: Callable[[list[int]], bool]) -> list[int]:
    """Return the items that change the outputs, found one by one until the remaining ones agree.

    ``agrees``: whether the outputs agree with the items of these indices. It must be True for none.
    """
    kept, wrong, known = list(range(count)), list[int](), 0
    while known < len(kept) and not agrees(kept):
        # The items before it are known to agree.
        known = first_change(len(kept), lambda number: agrees(kept[:number]), known)
        wrong.append(kept.pop(known))
    return wrong


def without_wrong_schedules(
    kernels: ModelKernels,
    check: OutputCheck,
    clock: SearchClock,
    note: Callable[[str], None],
    right: Mapping[int, TuningRecord] | None = None,
) -> CompiledModel | None:
    """Compile a model without the schedules that make its outputs differ.

    First, one run finds the kernels whose results differ from their unscheduled results, and drops
    their schedules. If the outputs still differ, bisection finds the wrong schedules, with the
    kernels of most work first. If the time is too short, the largest set of schedules stays whose
    outputs agreed. Since the order is by work, it favors heavy kernels, which gain the most.

    ``right``: schedules to fall back on, by the structural hash of the workload. Kernels that lose
    their schedules get these as `chosen`; without one they are `untouched` from now on. Returns
    None if the outputs differ even without all of the schedules.
    """
    right = right or {}
    schedules = by_workload(kernels.schedules())
    tasks = [
        (str(task.task_name), key)
        for task in sorted(kernels.tasks, key=lambda task: -naive_secs([task]))
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

    best, result = list[int](), compiled(())
    if not check.agrees(result):
        return None

    def agrees(kept: list[int]) -> bool:
        nonlocal best, result
        with clock.step():
            made = compiled(kept)
            is_right = check.agrees(made)
        if is_right and len(kept) > len(best):
            best, result = list(kept), made
        return is_right

    reason = ""
    try:
        found = set[int]()
        if isinstance(result, CompiledModel):
            with clock.step():
                found = _different(kernels, compiled(range(len(tasks))), result, check)
        suspects = [index for index, (_, key) in enumerate(tasks) if key in found]
        kept = [index for index in range(len(tasks)) if index not in suspects]
        if suspects and agrees(kept):
            wrong = suspects
        else:
            wrong = all_changes(len(tasks), agrees)
            result = compiled([index for index in range(len(tasks)) if index not in wrong])
    except TooLate:
        wrong = [index for index in range(len(tasks)) if index not in best]
        reason = ", because the time was too short to find which"
    for name, key in (tasks[index] for index in wrong):
        if key in right:
            kernels.chosen[key] = right[key]
        else:
            kernels.untouched.add(name)
    remain = "keep their first ones" if right else "are left untouched"
    if reason:
        which = f"{len(wrong)} of {len(tasks)} kernels" if best else "all kernels"
        note(f"schedules gave other outputs: {which} {remain}{reason}")
    else:
        names = ", ".join(tasks[index][0] for index in sorted(wrong))
        note(f"schedules of {names} gave other outputs: these {remain}")
    return result


def _different(
    kernels: ModelKernels, scheduled: CompiledModel, plain: CompiledModel, check: OutputCheck
) -> set[int]:
    """Return the structural hashes of workloads whose kernels differ from unscheduled ones."""
    results = results_of(kernels.lowered)
    names = different_kernels(scheduled, plain, check.inputs[0], results, check.tolerance)
    return set(workloads_of(kernels.lowered, names).values())


def _same(one: TuningRecord, other: TuningRecord) -> bool:
    return str(one.trace) == str(other.trace)
