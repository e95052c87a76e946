# SPDX-License-Identifier: Apache-2.0
"""Passes, legalizations and stages of kernels, and why schedules cannot change a kernel."""

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax, te
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import IntImm, PrimFunc
from tvm.tirx.transform import prim_func_pass

from ...design_space.trees import nodes_in

BY_RULE = {"schedule_rule": "None"}
"""The attribute of a stage that MetaSchedule's own rules leave alone."""


def kernel_pass(name: str, change: Callable[[PrimFunc], PrimFunc | None]) -> tvm.transform.Pass:
    """Make a pass that changes each kernel separately.

    ``change``: returns the changed kernel, or None to keep the kernel. It is not called for
    scheduled kernels.
    """

    def run(function: PrimFunc, _mod: Any, _context: Any) -> PrimFunc:
        is_scheduled = "tirx.is_scheduled" in (function.attrs or {})
        found = None if is_scheduled else change(function)
        return function if found is None else found

    return prim_func_pass(run, opt_level=0, name=name)


def compute_stage(shape: Sequence[int], element: Callable[..., Any], name: str) -> te.Tensor:
    """Make a stage that the schedule rule of another stage of the kernel schedules."""
    return te.compute(tuple(shape), element, name=name, attrs=BY_RULE)


def legalize_as_tvm(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize a call as TVM does by default."""
    return tvm.ir.Op.get(call.op.name).get_attr("FLegalize")(builder, call)


def why_not_schedulable(function: PrimFunc) -> str | None:
    """Return why no schedule can change a kernel; None if schedules can.

    TOPI writes some kernels with explicit loops and without blocks, such as ``scatter_elements``
    and ``cumsum``: a schedule sees only one opaque block. ``function``: the unscheduled kernel. The
    reason is a text for users.
    """
    if not has_root_block(function):
        return "it is written without blocks, which schedules work on"
    shapes = (getattr(param, "shape", None) or () for param in function.params)
    extents = [extent for shape in shapes for extent in shape]
    if any(isinstance(extent, IntImm) and int(extent) == 0 for extent in extents):
        return "an extent of it is 0"
    if not all(isinstance(extent, IntImm) for extent in extents):
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
    return nodes_in(statement, SBlock)
