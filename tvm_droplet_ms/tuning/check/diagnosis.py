# SPDX-License-Identifier: Apache-2.0
"""Find the schedules or passes that change a model's outputs, within a time limit.

Bisection recompiles the model for each answer. So each kernel is first compared with its
unscheduled version on the values of one run. Its results are then replaced by the unscheduled ones,
so that errors do not propagate.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from tvm_ffi import structural_hash

from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import TuningRecord

from ...measure.deviation import deviation
from ...model.bindings import operator_name, values_of
from ...session.roofline import naive_secs
from ...session.stop import StopRequest
from ..compile.compiled_model import CompiledModel
from ..model_kernels import ModelKernels
from ..schedules import PACKED, by_workload, database_of, workloads_of
from .output_check import OutputCheck

_MOST_BYTES = 2 << 30
"""The memory limit for the results of all kernels of a run."""


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
    return bisect_left(range(count), True, known + 1, count, key=lambda n: not agrees(n)) - 1


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


def different_kernels(
    scheduled: CompiledModel,
    plain: CompiledModel,
    inputs: Sequence[np.ndarray],
    results: Mapping[str, int],
    tolerance: float,
) -> set[str]:
    """Return the functions whose results differ from the unscheduled ones on the same operands.

    - ``results``: the number of results of each function; other functions are not compared.
    - ``tolerance``: the largest allowed deviation; 8-bit integers may be off by one.

    The result is also empty if the two models do not call the same functions in the same order, or
    if their results take too much memory.
    """
    run: list[tuple[str, list[np.ndarray]]] = []
    held = 0

    def keep(name: str, tensors: Sequence[Any]) -> None:
        nonlocal held
        name = name.removesuffix(PACKED)
        found = [each.numpy() for each in tensors[len(tensors) - results.get(name, 0) :]]
        held += sum(each.nbytes for each in found)
        run.append((name, found if held <= _MOST_BYTES else []))

    plain.watch(inputs, keep)
    if held > _MOST_BYTES:
        return set()
    expected = iter(run)
    different: set[str] = set()
    is_same_run = True

    def compare(name: str, tensors: Sequence[Any]) -> None:
        nonlocal is_same_run
        other, wanted = next(expected, ("", []))
        name = name.removesuffix(PACKED)
        if not is_same_run or name != other:
            is_same_run = False
            return
        for tensor, right in zip(tensors[len(tensors) - len(wanted) :], wanted, strict=True):
            if _is_different(tensor.numpy(), right, tolerance):
                different.add(name)
            tensor.copyfrom(right)

    scheduled.watch(inputs, compare)
    return different if is_same_run and next(expected, None) is None else set()


def results_of(lowered: IRModule) -> dict[str, int]:
    """Return the number of results of each function that ``main`` calls by ``R.call_tir``."""
    return {
        call.args[0].name_hint: len(getattr(call.ty, "fields", [None]))
        for call in values_of(lowered["main"])
        if isinstance(call, relax.Call) and operator_name(call) == "relax.call_tir"
    }


def _is_different(found: np.ndarray, expected: np.ndarray, tolerance: float) -> bool:
    if found.shape == expected.shape and found.dtype.kind in "iu" and found.dtype.itemsize == 1:
        return bool((np.abs(found.astype("int16") - expected.astype("int16")) > 1).any())
    return deviation(found, expected) > tolerance
