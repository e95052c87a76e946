# SPDX-License-Identifier: Apache-2.0
"""Finds what changes a model's outputs: by halves, and under a clock."""

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
    """A search ended for want of time."""


class SearchClock:
    """The time of a search, which knows how long its steps take."""

    def __init__(self, stop: StopRequest, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop = stop
        self._clock = clock
        self._longest = 0.0

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step; ``TooLate`` if one as long as the longest before does not fit any more."""
        if self._stop.is_due or self._stop.left < self._longest:
            raise TooLate
        start = self._clock()
        yield
        self._longest = max(self._longest, self._clock() - start)


def first_change(count: int, agrees: Callable[[int], bool], known: int = 0) -> int:
    """The item that makes the outputs of a sequence disagree, by bisection.

    ``agrees``: whether the outputs agree with so many of the first items, and none of the others;
    with ``known`` of them they do, with all of them not.
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
    """The items that change the outputs, one after the other until the others agree.

    ``agrees``: whether the outputs agree with the items of these indices; with none they do.
    """
    kept, wrong, known = list(range(count)), list[int](), 0
    while known < len(kept) and not agrees(kept):
        # What comes before the item agrees without it too.
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

    Kernels whose results differ from those without a schedule, in one run, are left out first. If
    the outputs differ still, the others are found by bisection, those of much work first. Where
    the time is too short for an answer, the most schedules stay with which the outputs agreed: the
    heavy ones, which gain most, rather than the light ones.
    The kernels that lose theirs are `untouched` from now on, or have one of ``right``, by the
    structural hash of the workload, as `chosen`. Returns None where the outputs differ without any
    of the schedules.
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
    """The workloads, by structural hash, whose kernels differ from those without schedules."""
    results = results_of(kernels.lowered)
    names = different_kernels(scheduled, plain, check.inputs[0], results, check.tolerance)
    return set(workloads_of(kernels.lowered, names).values())


def _same(one: TuningRecord, other: TuningRecord) -> bool:
    return str(one.trace) == str(other.trace)
