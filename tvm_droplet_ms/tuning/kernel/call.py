# SPDX-License-Identifier: Apache-2.0
"""Checks the arguments of ``tune_kernel``: the kernel and the limits of its run."""

from typing import Any

from tvm_ffi.structural import structural_walk

from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import For, IntImm, IterVar, PrimFunc

from ...search_strategy.stopping import Stop, check_stop
from ...session.given_inputs import is_integer, is_positive
from .errors import KernelError

_NAME = "main"


def module_of(mod: IRModule | PrimFunc) -> IRModule:
    """Make a module whose ``main`` is the kernel; ``KernelError`` if ``mod`` is not a kernel."""
    if isinstance(mod, PrimFunc):
        mod = IRModule({_NAME: mod})
    functions = list(mod.functions.items()) if isinstance(mod, IRModule) else []
    if len(functions) != 1 or not isinstance(functions[0][1], PrimFunc):
        raise KernelError(
            f"mod is {type(mod).__name__} with {len(functions)} functions: expected a PrimFunc, or "
            "an IRModule of one; tune() takes whole models"
        )
    # Name the function as ``tune_tir`` does, so that its records are found again.
    func = functions[0][1].with_attr("global_symbol", _NAME).with_attr("tirx.noalias", True)
    # Callers pass arguments of the declared shapes, so no layout is free.
    return IRModule({_NAME: func.without_attr("layout_free_buffers")})


def refuse_empty(module: IRModule) -> None:
    """Refuse a kernel without blocks, with empty loops, or with data-dependent reductions."""
    blocks: list[Any] = []
    loops: list[Any] = []
    structural_walk(module[_NAME].body, [(SBlock, blocks.append), (For, loops.append)])
    # The root block may be the only block.
    if not [block for block in blocks if block.iter_vars or block.name_hint != "root"]:
        raise KernelError(
            "the kernel has no blocks, as one that is written with an IR builder has none: there "
            "is nothing to schedule, compile it as it is"
        )
    extents = [loop.extent for loop in loops]
    extents += [axis.dom.extent for block in blocks for axis in block.iter_vars]
    if any(isinstance(extent, IntImm) and int(extent) < 1 for extent in extents):
        raise KernelError(
            "the kernel has a loop with an extent of 0: there is nothing to compute, expected "
            "extents of at least 1"
        )
    loads: list[Any] = []
    for block in blocks:
        for axis in block.iter_vars:
            if int(axis.iter_type) == int(IterVar.CommReduce):
                structural_walk(axis.dom.extent, (TensorLoad, loads.append))
    if loads:
        raise KernelError(
            f"the kernel reduces over an extent that it reads from {str(loads[0].source.name)!r}, "
            "as one of sparse rows does: expected extents that no argument's values decide, "
            "compile it as it is"
        )


def check_limits(
    threads: int,
    trials: int,
    seed: int,
    time_budget_s: float | None,
    stop: Stop,
    patience: int | None,
    target_latency_us: float | None,
) -> None:
    """Refuse numbers that are out of range; see ``tune_kernel``."""
    positive = "None or a positive number"
    for argument, value, fits, expected in (
        ("threads", threads, is_integer(threads, 1), "an integer of at least 1"),
        ("trials", trials, is_integer(trials, 0), "an integer of at least 0"),
        ("seed", seed, is_integer(seed), "an integer"),
        ("patience", patience, is_integer(patience, 1), "None or an integer of at least 1"),
        ("time_budget_s", time_budget_s, is_positive(time_budget_s), positive),
        ("target_latency_us", target_latency_us, is_positive(target_latency_us), positive),
    ):
        if not fits and not (value is None and expected.startswith("None")):
            raise KernelError(f"{argument} is {value!r}, expected {expected}")
    try:
        check_stop(stop)
    except ValueError as error:
        raise KernelError(str(error)) from error
