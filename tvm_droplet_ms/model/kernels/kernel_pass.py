# SPDX-License-Identifier: Apache-2.0
"""Kernels one by one: passes that change each, and what schedules can do with it."""

from collections.abc import Callable
from typing import Any

from tvm_ffi.structural import structural_walk

import tvm
from tvm.ir import IRModule
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import IntImm, PrimFunc


def kernel_pass(name: str, change: Callable[[PrimFunc], PrimFunc | None]) -> tvm.transform.Pass:
    """Make a pass that changes each kernel by itself.

    ``change``: changes a kernel; None leaves it as it is. Scheduled kernels are not asked about.
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
    """The reason that no schedule can change a kernel; None where one can.

    TOPI writes some kernels with loops of their own and without blocks, such as
    ``scatter_elements`` and ``cumsum``: one opaque block is all that a schedule sees. ``function``:
    the kernel, not scheduled. The reason is for a user to read.
    """
    if not has_root_block(function):
        return "it is written without blocks, which schedules work on"
    if any(_is_empty(param) for param in function.params):
        return "an extent of it is 0"
    if any(not isinstance(extent, IntImm) for param in function.params for extent in _shape(param)):
        return "an extent of it is known at run time only"
    return None


def has_root_block(function: PrimFunc) -> bool:
    """True if the blocks of a kernel lie in one that is named ``root``."""
    body: Any = function.body
    if not isinstance(body, SBlockRealize) or body.block.name_hint != "root":
        return False
    return bool(blocks_in(body.block.body))


def blocks_in(statement: Any) -> list[Any]:
    """The blocks of a statement, each before those inside it."""
    blocks: list[Any] = []
    structural_walk(statement, (SBlock, blocks.append))
    return blocks


def _shape(param: Any) -> tuple[Any, ...]:
    return tuple(getattr(param, "shape", None) or ())


def _is_empty(param: Any) -> bool:
    return any(isinstance(extent, IntImm) and int(extent) == 0 for extent in _shape(param))
