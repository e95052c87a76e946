# SPDX-License-Identifier: Apache-2.0
"""The design space of dot products, in place of TVM's, which is wrong for bytes."""

from collections.abc import Sequence
from typing import Any

from tvm_ffi.structural import structural_walk

from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.mutator import Mutator
from tvm.s_tir.meta_schedule.postproc import Postproc
from tvm.s_tir.meta_schedule.schedule_rule import AddRFactor, ScheduleRule
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply
from tvm.target import Target

from .dot_intrinsics import BYTES, HALVES, dot_unit, half_unit
from .dot_rule import DotProducts

FROM_TARGET = "post-order-apply"
"""TVM's name of the space whose rules go by the target."""

_BROKEN = ("dot_16x4_vnni", "dot_16x4_avx512")
"""The intrinsics of TVM's rules (``tensor_intrin/x86.py``)."""


def sound_space(space: Any, mod: IRModule, target: Target) -> Any:
    """The space to take for a kernel.

    For an x86 CPU with AVX-512 or VNNI, TVM's rules tensorize products of bytes
    (``space_generator.cc``, ``tensor_intrin/x86.py``). LLVM 22 refuses the intrinsic's operands,
    another rule vectorizes the loops around it, which does not compile, and weights that are not
    packed match it and give wrong numbers. Kernels that read bytes get ``DotProducts`` in its
    place, and so do those that read bfloat16, for which TVM has no rule. ``space``: what was asked
    for. Returns `space`, or another one in place of ``FROM_TARGET``.
    """
    is_x86 = target.kind.name == "llvm" and "arm_cpu" not in [str(key) for key in target.keys]
    is_default = isinstance(space, str) and space == FROM_TARGET
    if not (is_default and is_x86 and _reads_narrow(mod)):
        return space
    return _space_of_dots(target)


def sound_schedules(
    schedules: Sequence[Schedule], mod: IRModule, target: Target, seed: int
) -> Sequence[Schedule]:
    """The design spaces of a kernel, those of the sound space where TVM's rules tensorized it.

    ``schedules``: of the space that was asked for, one for each design space.
    """
    if not any(_is_broken(schedule) for schedule in schedules):
        return schedules
    space = _space_of_dots(target)
    context = TuneContext(mod, target=target, space_generator=space, rand_state=seed)
    return list(context.generate_design_space())


def _space_of_dots(target: Target) -> PostOrderApply:
    rules = list(ScheduleRule.create("llvm"))
    units = [unit for unit in (dot_unit(target), half_unit(target)) if unit is not None]
    if units:
        # Behind the rules that inline, before those that would tile the same blocks.
        place = next(n for n, rule in enumerate(rules) if isinstance(rule, AddRFactor))
        rules.insert(place, DotProducts(units, int(target.attrs.get("num-cores", 1)) > 1))
    return PostOrderApply(
        sch_rules=rules, postprocs=Postproc.create("llvm"), mutator_probs=Mutator.create("llvm")
    )


def _reads_narrow(mod: IRModule) -> bool:
    loads: list[Any] = []
    for _, func in mod.functions_items():
        structural_walk(func, (TensorLoad, loads.append))
    return any(str(load.source.dtype) in (*BYTES, *HALVES) for load in loads)


def _is_broken(schedule: Schedule) -> bool:
    return any(
        inst.kind.name == "Annotate" and str(inst.inputs[1]) in _BROKEN
        for inst in schedule.trace.insts
    )
