# SPDX-License-Identifier: Apache-2.0
"""Workloads, their design spaces, and contexts that tune them; nothing is ever compiled."""

from collections.abc import Callable, Sequence

from tvm import te
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target

LLVM = Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 4})
OTHER_LLVM = Target({"kind": "llvm", "mcpu": "cortex-a72", "num-cores": 4})


def matmul(n: int = 32, m: int = 32, k: int = 32) -> IRModule:
    """A matrix product with a block named C."""
    return IRModule({"main": te.create_prim_func(te_workload.matmul(n, m, k))})


def tiled_matmul(n: int = 16) -> Schedule:
    """Tiles of 4 x 2 in the reduction, parallel outside and vectorized inside, beside the init."""
    schedule = Schedule(matmul(n, n, n))
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    i_0, i_1 = schedule.split(i, [None, 4])
    j_0, j_1 = schedule.split(j, [None, 2])
    schedule.reorder(i_0, j_0, k, i_1, j_1)
    schedule.parallel(i_0)
    schedule.vectorize(j_1)
    schedule.annotate(i_0, "pragma_auto_unroll_max_step", 64)
    schedule.decompose_reduction(block, k)
    return schedule


def tile_all(sch: Schedule) -> None:
    """Tile the three loops of a matmul: 56 * 56 * 5 = 15,680 points at extent 32."""
    i, j, k = sch.get_loops(sch.get_sblock("C"))
    i0, i1, i2, i3 = sch.split(i, sch.sample_perfect_tile(i, n=4, max_innermost_factor=32))
    j0, j1, j2, j3 = sch.split(j, sch.sample_perfect_tile(j, n=4, max_innermost_factor=32))
    k0, k1 = sch.split(k, sch.sample_perfect_tile(k, n=2, max_innermost_factor=16))
    sch.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)


def tile_and_annotate(sch: Schedule) -> None:
    """A decision of every kind: tiles, a category, a compute location, a parallel extent."""
    block = sch.get_sblock("C")
    copy = sch.cache_write(block, 0, "global")
    i, j, _ = sch.get_loops(block)
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, n=2, max_innermost_factor=16))
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=16))
    sch.reorder(i0, j0, i1, j1)
    root = sch.get_sblock("root")
    sch.annotate(root, "meta_schedule.parallel", 64)
    sch.annotate(root, "meta_schedule.vectorize", 16)
    unroll = sch.sample_categorical([0, 16, 64], [1 / 3, 1 / 3, 1 / 3])
    sch.annotate(root, "meta_schedule.unroll_explicit", unroll)
    sch.reverse_compute_at(copy, sch.sample_compute_location(copy))


def tile_two(sch: Schedule) -> None:
    """Split two loops in two: 5 * 5 = 25 points, and as many modules, at extent 32."""
    _, j, k = sch.get_loops(sch.get_sblock("C"))
    sch.split(j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=16))
    sch.split(k, sch.sample_perfect_tile(k, n=2, max_innermost_factor=16))


def tile_one(sch: Schedule) -> None:
    """Split one loop in two: as many modules as its extent has divisors up to 64."""
    _, j, _ = sch.get_loops(sch.get_sblock("C"))
    sch.split(j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=64))


def decide_once(sch: Schedule) -> None:
    """Sample a decision that has one value; a tile of one position TVM cannot replay."""
    choice = sch.sample_categorical([4], [1.0])
    sch.annotate(sch.get_sblock("C"), "a_choice", choice)


def sample_nothing(sch: Schedule) -> None:
    """A design space of one schedule, without a decision."""
    sch.get_sblock("C")


def make_context(
    strategy: ms.SearchStrategy,
    mod: IRModule | None = None,
    space: Callable[[Schedule], None] = tile_all,
    *,
    target: Target = LLVM,
    postprocs: Sequence[ms.postproc.Postproc] = (),
    mutators: dict[ms.mutator.Mutator, float] | None = None,
    seed: int = 1,
    task_name: str = "matmul",
    num_threads: int = 1,
) -> ms.TuneContext:
    """A context of a schedule function's space."""
    return ms.TuneContext(
        matmul() if mod is None else mod,
        target=target,
        space_generator=ms.space_generator.ScheduleFn(
            space,
            sch_rules=[],
            postprocs=list(postprocs),
            mutator_probs=mutators or {ms.mutator.MutateTileSize(): 1.0},
        ),
        search_strategy=strategy,
        task_name=task_name,
        rand_state=seed,
        num_threads=num_threads,
    )


@derived_object
class Reject(ms.postproc.PyPostproc):
    """A postprocessor that rejects candidates by a condition, or all of them.

    TVM hands it back as a bare ``PyPostproc``, which is the only name that a strategy can see.
    """

    def __init__(self, rejects: Callable[[Schedule], bool] = lambda _: True) -> None:
        super().__init__()
        self.rejects = rejects

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        pass

    def apply(self, sch: Schedule) -> bool:
        return not self.rejects(sch)

    def clone(self) -> ms.postproc.Postproc:
        return Reject(self.rejects)


@derived_object
class Chance(ms.postproc.PyPostproc):
    """A postprocessor that samples, so that a trace alone does not determine its module."""

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        pass

    def apply(self, sch: Schedule) -> bool:
        choice = sch.sample_categorical([1, 2, 3], [1 / 3, 1 / 3, 1 / 3])
        sch.annotate(sch.get_sblock("root"), "a_choice", choice)
        return True

    def clone(self) -> ms.postproc.Postproc:
        return Chance()
