# SPDX-License-Identifier: Apache-2.0
"""The design spaces of products: for bytes in place of TVM's, for floats beside it."""

from collections.abc import Sequence
from typing import Any

from tvm_ffi.structural import structural_walk

from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.mutator import Mutator
from tvm.s_tir.meta_schedule.postproc import Postproc
from tvm.s_tir.meta_schedule.schedule_rule import AddRFactor, ScheduleRule
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply
from tvm.target import Target

from .dot_products.dot_intrinsics import BYTES, HALVES
from .dot_products.dot_rule import DotProducts
from .dot_products.dot_units import dot_unit, half_unit
from .matrix_tiles.find_matrix import matrix_units
from .matrix_tiles.tile_kind import PREFIX
from .matrix_tiles.tile_rule import MatrixTiles
from .native_vectors import register_bytes
from .register_tiles.find_product import find_product
from .register_tiles.tile_rule import PARTITIONED, RegisterTiles

FROM_TARGET = "post-order-apply"
"""TVM's name of the space whose rules go by the target."""

_REGISTERS = {32: 16, 64: 32}
"""The number of registers by their bytes: AVX2 and AVX-512, where tiles were measured."""

_BROKEN = ("dot_16x4_vnni", "dot_16x4_avx512")
"""The intrinsics of TVM's rules (``tensor_intrin/x86.py``)."""


def sound_space(space: Any, mod: IRModule, target: Target) -> Any:
    """The space to take for a kernel.

    For an x86 CPU with AVX-512 or VNNI, TVM's rules tensorize products of bytes
    (``space_generator.cc``, ``tensor_intrin/x86.py``). LLVM 22 refuses the intrinsic's operands,
    another rule vectorizes the loops around it, which does not compile, and weights that are not
    packed match it and give wrong numbers. Kernels that read bytes get ``DotProducts`` in its
    place, and so do those that read bfloat16, for which TVM has no rule. For AVX2 and AVX-512,
    products of floats get ``RegisterTiles`` beside TVM's rules. ``space``: the space that was asked
    for. Returns `space`, or another one in place of ``FROM_TARGET``.
    """
    is_x86 = target.kind.name == "llvm" and "arm_cpu" not in [str(key) for key in target.keys]
    is_default = isinstance(space, str) and space == FROM_TARGET
    if not (is_default and is_x86):
        return space
    if _reads_narrow(mod):
        return _space_of_dots(target)
    return _space_of_tiles(target) if _wants_tiles(mod, target) else space


def sound_schedules(
    schedules: Sequence[Schedule], mod: IRModule, target: Target, seed: int
) -> Sequence[Schedule]:
    """The design spaces of a kernel: those of ``sound_space`` where TVM's were asked for.

    ``schedules``: of the space that was asked for, one for each design space. Others than TVM's are
    left as they are, but for those that TVM's rules tensorized.
    """

    def made(space: PostOrderApply | str) -> list[Schedule]:
        context = TuneContext(mod, target=target, space_generator=space, rand_state=seed)
        return list(context.generate_design_space())

    if any(_is_broken(schedule) for schedule in schedules):
        return made(_space_of_dots(target))
    marks = PARTITIONED, PREFIX
    has_tiles = any(mark in str(schedule.trace) for schedule in schedules for mark in marks)
    is_narrow = bool(matrix_units(target)) and _reads_narrow(mod)
    if has_tiles or not (is_narrow or _wants_tiles(mod, target)):
        return schedules
    if _steps(schedules) != _steps(made(FROM_TARGET)):
        return schedules
    return made(_space_of_dots(target) if is_narrow else _space_of_tiles(target))


def _steps(schedules: Sequence[Schedule]) -> list[list[str]]:
    """The kinds of the instructions of some schedules."""
    return [[str(inst.kind.name) for inst in each.trace.insts] for each in schedules]


def _space_of_dots(target: Target) -> PostOrderApply:
    units = [unit for unit in (dot_unit(target), half_unit(target)) if unit is not None]
    rules: list[ScheduleRule] = [DotProducts(units, _is_parallel(target))] if units else []
    if tiled := matrix_units(target):
        rules.insert(0, MatrixTiles(tiled, _is_parallel(target)))
    return _space_with(*rules)


def _space_of_tiles(target: Target) -> PostOrderApply:
    size = register_bytes(target)
    return _space_with(RegisterTiles(size // 4, _REGISTERS[size], _is_parallel(target)))


def _is_parallel(target: Target) -> bool:
    return int(target.attrs.get("num-cores", 1)) > 1


def _space_with(*added: ScheduleRule) -> PostOrderApply:
    rules = list(ScheduleRule.create("llvm"))
    # Behind the rules that inline, before those that would tile the same blocks.
    place = next(n for n, rule in enumerate(rules) if isinstance(rule, AddRFactor))
    rules[place:place] = added
    return PostOrderApply(
        sch_rules=rules, postprocs=Postproc.create("llvm"), mutator_probs=Mutator.create("llvm")
    )


def _reads_narrow(mod: IRModule) -> bool:
    loads: list[Any] = []
    for _, func in mod.functions_items():
        structural_walk(func, (TensorLoad, loads.append))
    return any(str(load.source.dtype) in (*BYTES, *HALVES) for load in loads)


def _wants_tiles(mod: IRModule, target: Target) -> bool:
    """True if a kernel adds up products of floats in one block; spaces of several multiply."""
    # CPUs with AVX alone have these registers, too, and no instruction that multiplies and adds.
    if register_bytes(target) not in _REGISTERS or dot_unit(target) is None:
        return False
    blocks: list[Any] = []
    for _, func in mod.functions_items():
        structural_walk(func, (SBlock, blocks.append))
    return sum(find_product(block) is not None for block in blocks) == 1


def _is_broken(schedule: Schedule) -> bool:
    return any(
        inst.kind.name == "Annotate" and str(inst.inputs[1]) in _BROKEN
        for inst in schedule.trace.insts
    )
