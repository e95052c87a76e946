# SPDX-License-Identifier: Apache-2.0
"""Passes that change kernels one by one, and checks whether schedules can change a kernel."""

from collections.abc import Callable
from typing import Any

from tvm_ffi.structural import structural_walk

import tvm
from tvm.ir import IRModule
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import IntImm, PrimFunc


def kernel_pass(name: str, change: Callable[[PrimFunc], PrimFunc | None]) -> tvm.transform.Pass:
    """Make a pass that changes each kernel separately.

    ``change``: returns the changed kernel, or None to keep the kernel. It is not called for
    scheduled kernels.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in mod.functions_items():
            if isinstance(function, PrimFunc) and "tirx.is_scheduled" not in (function.attrs or {}):
                found = change(function)
                if found is not None:
                    changed.update_func(variable, found)
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name=name)


def why_not_schedulable(function: PrimFunc) -> str | None:
    """Return why no schedule can change a kernel; None if schedules can.

    TOPI writes some kernels with explicit loops and without blocks, such as ``scatter_elements``
    and ``cumsum``: a schedule sees only one opaque block. ``function``: the unscheduled kernel. The
    reason is a text for users.
    """
    if not has_root_block(function):
        return "it is written without blocks, which schedules work on"
    if any(_is_empty(param) for param in function.params):
        return "an extent of it is 0"
    if any(not isinstance(extent, IntImm) for param in function.params for extent in _shape(param)):
        return "an extent of it is known at run time only"
    return None


def has_root_block(function: PrimFunc) -> bool:
    """Return whether a kernel has blocks inside a block named ``root``."""
    body: Any = function.body
    if not isinstance(body, SBlockRealize) or body.block.name_hint != "root":
        return False
    return bool(blocks_in(body.block.body))


def blocks_in(statement: Any) -> list[Any]:
    """Return the blocks of a statement, each before its inner blocks."""
    blocks: list[Any] = []
    structural_walk(statement, (SBlock, blocks.append))
    return blocks


def _shape(param: Any) -> tuple[Any, ...]:
    return tuple(getattr(param, "shape", None) or ())


def _is_empty(param: Any) -> bool:
    return any(isinstance(extent, IntImm) and int(extent) == 0 for extent in _shape(param))
