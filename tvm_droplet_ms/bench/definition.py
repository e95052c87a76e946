# SPDX-License-Identifier: Apache-2.0
"""Definition of a space: a workload, and its design space, whole or cut to be enumerable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply, SpaceGenerator
from tvm.target import Target


@dataclass(frozen=True)
class Definition:
    """A workload and its design space.

    - ``description``: the workload and the schedule space, in a line.
    - ``mod``: the unscheduled module, with the function ``main``.
    - ``make_space``: makes a new generator of its design space.
    - ``is_whole``: True for MetaSchedule's own space, which is too large to enumerate.
    """

    name: str
    description: str
    mod: IRModule
    make_space: Callable[[], SpaceGenerator]
    is_whole: bool = False

    def context(self, target: Target, strategy: ms.SearchStrategy | str, seed: int = 1) -> object:
        """A context that tunes it on one thread."""
        return ms.TuneContext(
            self.mod,
            target=target,
            space_generator=self.make_space(),
            search_strategy=strategy,
            task_name=self.name,
            rand_state=seed,
            num_threads=1,
        )


def cut(
    structure: str,
    *,
    unroll: Sequence[int] = (0, 16, 64, 512),
    write_levels: Sequence[int] = (),
    rfactor: bool = False,
    parallel: bool = False,
) -> Callable[[], SpaceGenerator]:
    """MetaSchedule's rules for a CPU with a multi-level tiling of fewer levels.

    The rules and their other settings are those of ``ScheduleRule::DefaultLLVM``
    (``src/s_tir/meta_schedule/schedule_rule/schedule_rule.cc``).

    - ``structure``: the tiling; MetaSchedule's own is "SSRSRS".
    - ``unroll``: the limits of unrolling to choose from.
    - ``write_levels``: at which levels a write cache may be; none for no write cache.
    - ``rfactor``: True if a reduction may be split in two.
    - ``parallel``: True to annotate loops as parallel, which adds an extent to choose.
    """
    rule = ms.schedule_rule

    def make() -> SpaceGenerator:
        cache = rule.ReuseType(req="may", levels=list(write_levels), scope="global")
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
                *([rule.AddRFactor(max_jobs_per_core=16, max_innermost_factor=64)] * rfactor),
                rule.MultiLevelTiling(
                    structure=structure,
                    max_innermost_factor=64,
                    reuse_write=cache if write_levels else None,
                ),
                rule.ParallelizeVectorizeUnroll(
                    max_jobs_per_core=16 if parallel else -1,
                    max_vectorize_extent=64,
                    unroll_max_steps=list(unroll),
                    unroll_explicit=True,
                ),
                rule.RandomComputeLocation(),
            ],
            postprocs="from-target",
            mutator_probs="from-target",
        )

    return make


def whole() -> SpaceGenerator:
    return PostOrderApply()


def module(tensors: Sequence[te.Tensor]) -> IRModule:
    function = te.create_prim_func(list(tensors)).with_attr("global_symbol", "main")
    return IRModule({"main": function})


def define(
    name: str,
    workload: str,
    tensors: Callable[[], Sequence[te.Tensor]],
    structure: str,
    *,
    unroll: Sequence[int] = (0, 16, 64, 512),
    write_levels: Sequence[int] = (),
    rfactor: bool = False,
    parallel: bool = False,
) -> tuple[str, Callable[[], Definition]]:
    extras = [f"unrolled to {'/'.join(map(str, unroll))}"] if unroll else []
    extras += ["a write cache or none"] if write_levels else []
    extras += ["reductions split or not"] if rfactor else []
    extras += ["a parallel extent"] if parallel else []
    description = "; ".join([workload, f"MetaSchedule's rules tiled {structure}", *extras])
    space = cut(
        structure, unroll=unroll, write_levels=write_levels, rfactor=rfactor, parallel=parallel
    )
    return name, lambda: Definition(name, description, module(tensors()), space)


def define_whole(
    name: str, workload: str, tensors: Callable[[], Sequence[te.Tensor]]
) -> tuple[str, Callable[[], Definition]]:
    description = f"{workload}; MetaSchedule's whole space for a CPU"
    return name, lambda: Definition(name, description, module(tensors()), whole, is_whole=True)
