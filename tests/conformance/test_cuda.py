# SPDX-License-Identifier: Apache-2.0
"""CUDA without a GPU: candidates fit the target, checked here and not by TVM's verifier."""

import math

import pytest

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from .driving import drive
from .objectives import rugged, timed
from .strategies import make_droplet
from .watching import follow
from .workloads import matmul

CUDA = Target(
    {
        "kind": "cuda",
        "arch": "sm_80",
        "max_threads_per_block": 256,
        "max_shared_memory_per_block": 8192,
        "thread_warp_size": 32,
    }
)
"""Limits so low that most schedules of TVM's rules for the matmul exceed them."""


def lower(mod: tvm.IRModule) -> tvm.IRModule:
    """As far as the allocations' sizes and places are known."""
    return tvm.transform.Sequential(
        [
            s_tir.transform.LowerCrossThreadReduction(),
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.LiftThreadBinding(),
            s_tir.transform.CompactBufferAllocation(),
        ]
    )(mod)


class Kernel:
    """Resources per thread block of one kernel, a loop nest bound to the grid."""

    def __init__(self) -> None:
        self.threads: dict[str, set[int]] = {}
        self.shared_bytes = 0

    @property
    def threads_per_block(self) -> int:
        assert all(len(extents) == 1 for extents in self.threads.values()), self.threads
        return math.prod(next(iter(extents)) for extents in self.threads.values())


def kernels_of(mod: tvm.IRModule) -> list[Kernel]:
    """Walk a scheduled module; the outermost bound loop of a nest begins a kernel."""
    kernels: list[Kernel] = []

    def walk(stmt, kernel: Kernel | None) -> None:
        if isinstance(stmt, tirx.For):
            if stmt.kind == tirx.ForKind.THREAD_BINDING:
                if kernel is None:
                    kernel = Kernel()
                    kernels.append(kernel)
                tag = str(stmt.thread_binding.thread_tag)
                if tag.startswith("threadIdx"):
                    kernel.threads.setdefault(tag, set()).add(int(stmt.extent))
            walk(stmt.body, kernel)
        elif isinstance(stmt, s_tir.SBlockRealize):
            walk(stmt.block, kernel)
        elif isinstance(stmt, s_tir.SBlock):
            for buffer in stmt.alloc_buffers:
                if buffer.scope().startswith("shared"):
                    assert kernel is not None, "shared memory outside a kernel"
                    elements = math.prod(int(extent) for extent in buffer.shape)
                    kernel.shared_bytes += elements * tvm.DataType(buffer.dtype).itemsize
            walk(stmt.body, kernel)
        elif isinstance(stmt, tirx.SeqStmt):
            for child in stmt.seq:
                walk(child, kernel)
        elif isinstance(stmt, tirx.IfThenElse):
            walk(stmt.then_case, kernel)
            if stmt.else_case is not None:
                walk(stmt.else_case, kernel)

    walk(lower(mod)["main"].body, None)
    return kernels


def cuda_context(strategy, target: Target, without: str = "nothing") -> ms.TuneContext:
    """TVM's own design space for a GPU, some postprocessor left out."""
    postprocs = ms.postproc.Postproc.create("cuda")
    return ms.TuneContext(
        matmul(128, 128, 128),
        target=target,
        space_generator=ms.space_generator.PostOrderApply(
            sch_rules=ms.schedule_rule.ScheduleRule.create("cuda"),
            postprocs=[postproc for postproc in postprocs if without not in str(postproc)],
            mutator_probs=ms.mutator.Mutator.create("cuda"),
        ),
        search_strategy=strategy,
        rand_state=1,
        num_threads=1,
    )


def drive_and_count(context: ms.TuneContext) -> tuple[list[tuple[int, int]], list]:
    """The threads and the shared bytes of each measured kernel."""
    scheduled = []

    def objective(candidate):
        scheduled.append(candidate.sch.mod)
        return timed(rugged, repeats=2)(candidate)

    driven = drive(context, objective, max_trials=60)
    kernels = [kernel for mod in scheduled for kernel in kernels_of(mod)]
    assert len(kernels) >= len(driven.trials) == 60
    return [(kernel.threads_per_block, kernel.shared_bytes) for kernel in kernels], driven.trials


@pytest.mark.parametrize("target", [CUDA, Target("nvidia/nvidia-a100")], ids=["small", "a100"])
def test_candidates_fit_the_target(caplog, target):
    with follow(caplog) as followed:
        counted, trials = drive_and_count(cuda_context(make_droplet(), target))
    max_threads = int(target.attrs["max_threads_per_block"])
    max_bytes = int(target.attrs["max_shared_memory_per_block"])
    for threads, shared_bytes in counted:
        assert 32 <= threads <= max_threads
        assert 0 < shared_bytes <= max_bytes
    steps = [progress for progress, _ in followed.events("step")]
    assert steps
    assert steps[-1].best_secs < min(rugged(trial.decisions) for trial in trials[:12])


def test_limits_bind():
    """The count sees candidates that do not fit, where TVM does not verify them."""
    context = cuda_context(make_droplet(), CUDA, without="VerifyGPUCode")
    counted, _ = drive_and_count(context)
    assert any(threads > 256 or shared_bytes > 8192 for threads, shared_bytes in counted)
