# SPDX-License-Identifier: Apache-2.0
"""The design space of a kernel, without the rules that TVM 0.27 has wrong."""

from typing import Any

from tvm_ffi.structural import structural_walk

from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.s_tir.meta_schedule.mutator import Mutator
from tvm.s_tir.meta_schedule.postproc import Postproc
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply
from tvm.target import Target

FROM_TARGET = "post-order-apply"
"""TVM's name of the space whose rules go by the target."""

_BYTES = ("int8", "uint8")


def sound_space(space: Any, mod: IRModule, target: Target) -> Any:
    """The space to take for a kernel.

    For an x86 CPU with AVX-512 or VNNI, TVM's rules tensorize products of bytes
    (``space_generator.cc``, ``tensor_intrin/x86.py``). LLVM 22 refuses the intrinsic's operands,
    another rule vectorizes the loops around it, which does not compile, and weights that are not
    packed match it and give wrong numbers. So kernels that read bytes get the rules of any CPU.
    ``space``: what was asked for. Returns `space`, or another one in place of ``FROM_TARGET``.
    """
    is_x86 = target.kind.name == "llvm" and "arm_cpu" not in [str(key) for key in target.keys]
    is_default = isinstance(space, str) and space == FROM_TARGET
    if not (is_default and is_x86 and _reads_bytes(mod)):
        return space
    return PostOrderApply(
        sch_rules=ScheduleRule.create("llvm"),
        postprocs=Postproc.create("llvm"),
        mutator_probs=Mutator.create("llvm"),
    )


def _reads_bytes(mod: IRModule) -> bool:
    loads: list[Any] = []
    for _, func in mod.functions_items():
        structural_walk(func, (TensorLoad, loads.append))
    return any(str(load.source.dtype) in _BYTES for load in loads)
