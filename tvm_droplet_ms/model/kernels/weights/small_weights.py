# SPDX-License-Identifier: Apache-2.0
"""Marks 7-bit weights, which CPUs without VNNI multiply with fewer instructions."""

from typing import Any

import numpy as np
from tvm_ffi.structural import structural_walk

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from ....design_space.dot_products.dot_intrinsics import MOST_OF_SMALL, SMALL_WEIGHTS
from ....design_space.dot_products.dot_units import dot_unit
from ...bindings import array_of
from .weight_reuse import is_kernel_call


def mark_small_weights() -> tvm.transform.Pass:
    """Make a pass that marks signed byte weights with magnitudes of at most 64.

    Quantizers produce them with ``reduce_range``. A kernel that several layers share is marked only
    if all of these have such weights. The pass applies to lowered modules within the target, and
    has an effect only on targets that multiply bytes as words.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        target = Target.current(allow_none=True)
        unit = None if target is None else dot_unit(target)
        if unit is None or not unit.widens:
            return mod
        are_small: dict[tuple[str, int], bool] = {}
        for _, function in mod.functions_items():
            if isinstance(function, relax.Function):
                _look(function, are_small)
        changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for name in {name for name, _ in are_small}:
            small = sorted(
                n for (own, n), is_small in are_small.items() if is_small and own == name
            )
            if small:
                marked = mod[name].with_attr(SMALL_WEIGHTS, small)
                changed.update_func(mod.get_global_var(name), marked)
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name="MarkSmallWeights")


def _look(function: relax.Function, are_small: dict[tuple[str, int], bool]) -> None:
    """Record for each signed byte operand whether it is a constant of small numbers.

    This includes calls in branches.
    """
    calls: list[Any] = []
    structural_walk(function, (relax.Call, calls.append))
    for call in calls:
        if not is_kernel_call(call):
            continue
        for number, operand in enumerate(call.args[1]):
            if str(getattr(operand.ty, "dtype", "")) == "int8":
                key = str(call.args[0].name_hint), number
                are_small[key] = _is_small(array_of(operand)) and are_small.get(key, True)


def _is_small(values: "np.ndarray[Any, Any] | None") -> bool:
    if values is None:
        return False
    return bool(((values >= -MOST_OF_SMALL) & (values <= MOST_OF_SMALL)).all())
