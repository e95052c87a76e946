# SPDX-License-Identifier: Apache-2.0
"""Find the kernels whose schedules change their results, in one run of a model.

Bisection would recompile the model for each answer. Instead, each kernel is compared with its
unscheduled version on the values of one run. Its results are then replaced by the unscheduled ones,
so that errors do not propagate.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule

from ...measure.deviation import deviation
from ...model.bindings import operator_name, values_of
from ..compile.compiled_model import CompiledModel
from ..schedules import PACKED

_MOST_BYTES = 2 << 30
"""The memory limit for the results of all kernels of a run."""


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
