# SPDX-License-Identifier: Apache-2.0
"""Takes a Relax module through every step of a tuned model, with random schedules.

The target is plain ``llvm``: the kernels run on any CPU, and the design spaces are those of TVM for
CPUs without special instructions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.model.kernels.lowering_passes import register_schedule_rules
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.picks.first_picks import pick_schedules
from tvm_droplet_ms.tuning.picks.pick_workers import WarmStart

TARGET = Target({"kind": "llvm", "num-cores": 1})


class Run(NamedTuple):
    """The outcome of the steps."""

    outputs: list[np.ndarray]
    kernels: list[str]
    """The names of the fused kernels, without the numbers at their ends."""
    schedules: list[Schedule]
    """The schedule of each kernel."""
    compiled: IRModule
    """The module that was compiled."""


def fuse(mod: IRModule, rules: Mapping[str, Any] | None = None) -> IRModule:
    """Legalize and fuse, as a model is before tuning."""
    passes = [
        relax.transform.LegalizeOps(None if rules is None else dict(rules)),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.AttachAttrLayoutFreeBuffers(),
        relax.transform.DeadCodeElimination(),
    ]
    with TARGET:
        return tvm.transform.Sequential(passes)(mod)


def design_space(
    mod: IRModule, seed: int = 1, target: Target = TARGET
) -> tuple[ms.TuneContext, list[Schedule]]:
    """MetaSchedule's design spaces of a kernel, and the context that holds its postprocessors."""
    with fast_tune_contexts():
        context = ms.TuneContext(
            mod,
            target=target,
            space_generator="post-order-apply",
            search_strategy="replay-trace",
            rand_state=seed,
            num_threads=1,
        )
    return context, list(context.generate_design_space())


def draw_schedule(mod: IRModule, seed: int = 1) -> Schedule:
    """A random schedule from the last of a kernel's design spaces that has a valid one."""
    context, spaces = design_space(mod, seed)
    for attempt in range(8 * len(spaces)):
        trace = spaces[-1 - attempt % len(spaces)].trace
        schedule = Schedule(mod, seed=seed + attempt)
        Trace(trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        if all(post.apply(schedule) for post in context.space_generator.postprocs):
            return schedule
    raise AssertionError(f"no valid schedule drawn from {len(spaces)} design spaces")


def run_tuned(
    mod: IRModule,
    inputs: Sequence[np.ndarray],
    *,
    rules: Mapping[str, Any] | None = None,
    draw: Callable[[IRModule], Schedule] = draw_schedule,
) -> Run:
    """Legalize, fuse, schedule every kernel at random, apply, pack weights, compile and run."""
    mod = fuse(mod, rules)
    kernels, schedules = [], []
    database = ms.database.MemoryDatabase()
    for task in ms.relax_integration.extract_tasks(mod, TARGET):
        (kernel,) = task.dispatched
        schedule = draw(kernel)
        workload = database.commit_workload(kernel)
        database.commit_tuning_record(
            ms.database.TuningRecord(schedule.trace, workload, [1e-3], TARGET)
        )
        kernels.append(str(task.task_name).rstrip("0123456789"))
        schedules.append(schedule)
    with TARGET, database:
        after = [
            relax.transform.MetaScheduleApplyDatabase(),
            relax.transform.SplitLayoutRewritePreproc(),
            relax.transform.LiftTransformParams(),
            relax.transform.FoldConstant(),
            relax.transform.DeadCodeElimination(),
        ]
        mod = tvm.transform.Sequential(after)(mod)
    return Run(execute(mod, inputs), kernels, schedules, mod)


def picked(mod: IRModule, seed: int = 0) -> ModelKernels:
    """The kernels of a graph with the schedules that ``tune`` picks before it measures."""
    register_schedule_rules()
    kernels = ModelKernels(mod, TARGET, ms.database.MemoryDatabase())
    rates = MachineRates(100e9, (1000,), (10e9,))
    kernels.picks = pick_schedules(kernels.tasks, rates, warm_start=WarmStart(), seed=seed)
    assert not kernels.picks.unscheduled
    return kernels


def tir_of(mod: IRModule) -> list[tvm.tirx.PrimFunc]:
    """The kernels of a module."""
    return [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]


def execute(mod: IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile a module and run its function ``main``."""
    vm = relax.VirtualMachine(tvm.compile(mod, TARGET), tvm.cpu())
    result = vm["main"](*map(tvm.runtime.tensor, inputs))
    outputs = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [output.numpy() for output in outputs]


def unscheduled(mod: IRModule) -> list[str]:
    """The names of the kernels to which no schedule was applied."""
    return [
        str(var.name_hint)
        for var, function in mod.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
        and not (function.attrs and function.attrs.get("tirx.is_scheduled"))
    ]
