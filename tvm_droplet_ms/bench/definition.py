# SPDX-License-Identifier: Apache-2.0
"""Definition of a space: a workload and its design space, whole or cut to an enumerable size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply, SpaceGenerator
from tvm.target import Target

Tensors = Callable[[], Sequence[te.Tensor]]
"""Makes the tensors of a workload: its inputs, and its output."""


@dataclass(frozen=True)
class Definition:
    """A workload and its design space.

    - ``description``: the workload and the schedule space, in one line.
    - ``mod``: the unscheduled module, with the function ``main``.
    - ``make_space``: makes a new generator of the design space.
    - ``is_whole``: True for MetaSchedule's own space, which is too large to enumerate.
    """

    name: str
    description: str
    mod: IRModule
    make_space: Callable[[], SpaceGenerator]
    is_whole: bool = False

    def context(self, target: Target, strategy: ms.SearchStrategy | str, seed: int = 1) -> object:
        """A context that tunes the workload on one thread."""
        return ms.TuneContext(
            self.mod,
            target=target,
            space_generator=self.make_space(),
            search_strategy=strategy,
            task_name=self.name,
            rand_state=seed,
            num_threads=1,
        )


@dataclass(frozen=True)
class Cut:
    """MetaSchedule's rules for a CPU with a multi-level tiling of fewer levels.

    The rules and their other settings come from ``ScheduleRule::DefaultLLVM``
    (``src/s_tir/meta_schedule/schedule_rule/schedule_rule.cc``).

    - ``structure``: the tiling; MetaSchedule's own is "SSRSRS".
    - ``unroll``: the unroll limits to choose from.
    - ``write_levels``: the levels at which a write cache may be; empty for no write cache.
    - ``rfactor``: True if a reduction may be split in two.
    - ``parallel``: True to annotate loops as parallel, which adds a parallel extent to choose.
    """

    structure: str
    unroll: tuple[int, ...] = (0, 16, 64, 512)
    write_levels: tuple[int, ...] = ()
    rfactor: bool = False
    parallel: bool = False

    def __str__(self) -> str:
        extras = [f"unrolled to {'/'.join(map(str, self.unroll))}"] if self.unroll else []
        extras += ["a write cache or none"] if self.write_levels else []
        extras += ["reductions split or not"] if self.rfactor else []
        extras += ["a parallel extent"] if self.parallel else []
        return "; ".join([f"MetaSchedule's rules tiled {self.structure}", *extras])

    def make(self) -> SpaceGenerator:
        """Make a generator of the design space."""
        rule = ms.schedule_rule
        cache = rule.ReuseType(req="may", levels=list(self.write_levels), scope="global")
        return PostOrderApply(
            sch_rules=[
                rule.InlineConstantScalars(),
                rule.AutoInline(
                    into_producer=False,
                    into_consumer=True,
                    inline_const_tensor=True,
                    disallow_if_then_else=True,
                    require_injective=True,
                    require_ordered=True,
                    disallow_op=["tirx.exp"],
                ),
                *([rule.AddRFactor(max_jobs_per_core=16, max_innermost_factor=64)] * self.rfactor),
                rule.MultiLevelTiling(
                    structure=self.structure,
                    max_innermost_factor=64,
                    reuse_write=cache if self.write_levels else None,
                ),
                rule.ParallelizeVectorizeUnroll(
                    max_jobs_per_core=16 if self.parallel else -1,
                    max_vectorize_extent=64,
                    unroll_max_steps=list(self.unroll),
                    unroll_explicit=True,
                ),
                rule.RandomComputeLocation(),
            ],
            postprocs="from-target",
            mutator_probs="from-target",
        )


def whole() -> SpaceGenerator:
    """Make a generator of MetaSchedule's whole design space."""
    return PostOrderApply()


def module(tensors: Sequence[te.Tensor]) -> IRModule:
    """Make a module whose function ``main`` computes the tensors."""
    function = te.create_prim_func(list(tensors)).with_attr("global_symbol", "main")
    return IRModule({"main": function})


def define(name: str, workload: str, tensors: Tensors, cut: Cut | None = None) -> Definition:
    """The definition of a workload with a part of MetaSchedule's space, or with the whole space."""
    if cut is None:
        description = f"{workload}; MetaSchedule's whole space for a CPU"
        return Definition(name, description, module(tensors()), whole, is_whole=True)
    return Definition(name, f"{workload}; {cut}", module(tensors()), cut.make)
