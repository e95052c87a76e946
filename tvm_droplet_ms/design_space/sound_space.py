# SPDX-License-Identifier: Apache-2.0
"""Design spaces for products: for bytes instead of TVM's, for floats in addition to TVM's."""

from collections.abc import Sequence
from typing import Any

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
from .dot_products.find_dot import dot_unit, half_unit
from .lane_sums import LaneSums, contiguous_axis
from .matrix_tiles.find_matrix import matrix_units
from .matrix_tiles.tile_rule import MatrixTiles
from .matrix_tiles.tile_shapes import PREFIX
from .native_vectors import is_as_sampled, register_bytes
from .register_tiles.partitions import PARTITIONED
from .register_tiles.tile_rule import RegisterTiles, find_product
from .trees import nodes_in

FROM_TARGET = "post-order-apply"
"""TVM's name for the space with the target's default rules."""

_REGISTERS = {32: 16, 64: 32}
"""Number of vector registers by their bytes, for AVX2 and AVX-512."""

_BROKEN = ("dot_16x4_vnni", "dot_16x4_avx512")
"""Faulty intrinsics of TVM's rules (``tensor_intrin/x86.py``)."""


def sound_space(space: Any, mod: IRModule, target: Target) -> Any:
    """Return the space to use for a kernel.

    For an x86 CPU with AVX-512 or VNNI, TVM's rules tensorize products of bytes
    (``space_generator.cc``, ``tensor_intrin/x86.py``). That fails in three ways. LLVM 22 refuses
    the intrinsic's operands. Another rule vectorizes the loops around the intrinsic, which does not
    compile. Unpacked weights match the intrinsic and give wrong results. Kernels that read bytes
    get ``DotProducts`` instead. So do kernels that read bfloat16, for which TVM has no rule. Float
    products get ``RegisterTiles`` in addition to TVM's rules, on AVX2 and AVX-512. Reductions of
    contiguous numbers get ``LaneSums``. ``space``: the requested space. Returns `space`, or a
    replacement for ``FROM_TARGET``.
    """
    is_default = isinstance(space, str) and space == FROM_TARGET
    if not (is_default and _is_x86(target)):
        return space
    if _reads_narrow(mod):
        return _space_of_dots(target)
    rules = _float_rules(mod, target)
    return _space_with(*rules) if rules else space


def sound_schedules(
    schedules: Sequence[Schedule], mod: IRModule, target: Target, seed: int
) -> Sequence[Schedule]:
    """Return the design spaces of a kernel: TVM's are replaced by those of ``sound_space``.

    ``schedules``: the schedules of the requested space, one per design space. Custom schedules stay
    unchanged, unless TVM's rules tensorized them.
    """

    if is_as_sampled():
        return schedules

    def made(space: PostOrderApply | str) -> list[Schedule]:
        context = TuneContext(mod, target=target, space_generator=space, rand_state=seed)
        return list(context.generate_design_space())

    steps = [inst for schedule in schedules for inst in schedule.trace.insts]
    if any(each.kind.name == "Annotate" and str(each.inputs[1]) in _BROKEN for each in steps):
        return made(_space_of_dots(target))
    marks = PARTITIONED, PREFIX
    has_tiles = any(mark in str(schedule.trace) for schedule in schedules for mark in marks)
    is_narrow = bool(matrix_units(target)) and _reads_narrow(mod)
    is_wide = _is_x86(target) and not _reads_narrow(mod)
    rules = _float_rules(mod, target) if is_wide else []
    if has_tiles or not (is_narrow or rules):
        return schedules
    # Products of floats get the plain rules on every CPU; others need intrinsics to be registered.
    if _steps(schedules) != _steps(made(_space_with())):
        return schedules
    return made(_space_of_dots(target) if is_narrow else _space_with(*rules))


def _steps(schedules: Sequence[Schedule]) -> list[list[str]]:
    """Return the instruction kinds of each schedule."""
    return [[str(inst.kind.name) for inst in each.trace.insts] for each in schedules]


def _space_of_dots(target: Target) -> PostOrderApply:
    units = [unit for unit in (dot_unit(target), half_unit(target)) if unit is not None]
    rules: list[ScheduleRule] = [DotProducts(units, _is_parallel(target))] if units else []
    if tiled := matrix_units(target):
        rules.insert(0, MatrixTiles(tiled, _is_parallel(target)))
    return _space_with(*rules)


def _is_x86(target: Target) -> bool:
    return target.kind.name == "llvm" and "arm_cpu" not in [str(key) for key in target.keys]


def _float_rules(mod: IRModule, target: Target) -> list[ScheduleRule]:
    """Return the rules beside TVM's for a kernel without bytes and halves."""
    rules: list[ScheduleRule] = []
    if _wants_tiles(mod, target):
        size = register_bytes(target)
        rules.append(RegisterTiles(size, _REGISTERS[size], _is_parallel(target)))
    blocks = (each for func in mod.functions.values() for each in nodes_in(func, SBlock))
    if any(contiguous_axis(block) is not None for block in blocks):
        rules.append(LaneSums(_is_parallel(target)))
    return rules


def _is_parallel(target: Target) -> bool:
    return int(target.attrs.get("num-cores", 1)) > 1


def _space_with(*added: ScheduleRule) -> PostOrderApply:
    rules = list(ScheduleRule.create("llvm"))
    # After the inlining rules, before the rules that would tile the same blocks.
    place = next(n for n, rule in enumerate(rules) if isinstance(rule, AddRFactor))
    rules[place:place] = added
    return PostOrderApply(
        sch_rules=rules, postprocs=Postproc.create("llvm"), mutator_probs=Mutator.create("llvm")
    )


def _reads_narrow(mod: IRModule) -> bool:
    return any(
        str(load.source.dtype) in (*BYTES, *HALVES)
        for function in mod.functions.values()
        for load in nodes_in(function, TensorLoad)
    )


def _wants_tiles(mod: IRModule, target: Target) -> bool:
    """Return whether exactly one block sums float products; several blocks multiply the spaces."""
    # CPUs with only AVX have these registers too, but no fused multiply-add.
    if register_bytes(target) not in _REGISTERS or dot_unit(target) is None:
        return False
    blocks = (each for func in mod.functions.values() for each in nodes_in(func, SBlock))
    return sum(find_product(block) is not None for block in blocks) == 1
