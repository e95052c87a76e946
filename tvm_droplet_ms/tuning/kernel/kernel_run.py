# SPDX-License-Identifier: Apache-2.0
"""Tunes a single kernel, checks its best schedules, and returns the fastest correct one."""

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_walk

from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy
from tvm.s_tir.meta_schedule.space_generator import SpaceGenerator
from tvm.target import Target
from tvm.tirx import For, IntImm, IterVar, PrimFunc

from ...display.displays import Progress, message
from ...measure.allocation import GivenArguments
from ...search_strategy import DropletStrategy
from ...search_strategy.stopping import Stop, check_stop
from ...session.cuda import device_name
from ...session.errors import ModelError
from ...session.given_inputs import is_integer, is_positive
from ...session.one_writer import only_writer
from ...session.records import mend_torn_end
from ...session.stop import StopRequest
from ...session.target import cpu_target, kernel_target, runs_on
from ...session.threads import check_threads, worker_threads
from ...session.work_dir import begun_target, open_work_dir
from ..budget.stop_rules import StopRules
from .check.arguments import (
    arguments_of,
    integer_roles,
    measured_values,
    random_arrays,
    summed,
    tolerance,
)
from .check.verification import Verifier, verifying_pool
from .errors import KernelError
from .faults import CHECKS, refuse_another_kernel, refusing_full_disks, remove_left_checks
from .fleet import Fleet, fleet_of, refuse_lost_fleet
from .kernel_result import KernelResult
from .machine import flop_of, write_machine
from .measuring import KernelRun

LIBRARY = "kernel.so"
"""The file in the work directory that holds the winner."""


def tune_kernel(
    mod: IRModule | PrimFunc,
    *,
    target: str | Mapping[str, Any] | Target = "auto",
    threads: int = 1,
    trials: int = 64,
    time_budget_s: float | None = None,
    stop: Stop = "auto",
    patience: int | None = None,
    target_latency_us: float | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    strategy: SearchStrategy | None = None,
    space: SpaceGenerator | Callable[[Schedule], Any] | str = "post-order-apply",
    tracker: str | None = None,
    key: str | None = None,
    name: str = "kernel",
    callbacks: Sequence[MeasureCallback] = (),
    progress: Progress = "auto",
    seed: int = 0,
) -> KernelResult:
    """Tune a kernel for a CPU or a CUDA device, and check the result.

    Parameters
    ----------
    mod : IRModule | PrimFunc
        The unscheduled kernel: a function of buffers with constant shapes, such as the result of
        ``te.create_prim_func``, or a module with one such function.
    target : str | Mapping[str, Any] | Target
        "auto" for this machine's CPU, or a target of kind ``llvm`` that this machine runs. "cuda"
        for its CUDA device, or a tag such as "nvidia/nvidia-h100". With a tracker, "auto" is the
        CPU of its servers.
    threads : int
        Number of threads to tune, check and time with.
    trials : int
        Number of schedules to measure, including earlier runs in the directory. 0 measures none.
    time_budget_s : float | None
        Wall-clock time in seconds of the tuning. The batch in progress is still finished, and the
        best schedules are checked. None for no limit.
    stop : Literal["auto"] | float | None
        The search ends when the expected gain of the next 32 trials, as a share of the best time,
        is below this; see ``DropletStrategy``. None (``none``) spends all trials. Not used with
        ``strategy``, which has its own stop rule.
    patience : int | None
        Number of trials without a gain after which the run ends. None for no limit.
    target_latency_us : float | None
        End when the kernel takes at most this many microseconds. None for no limit.
    inputs : Mapping[str, np.ndarray] | None
        Values of arguments by name, such as indices, for the measurements and the check. Other
        arguments are random: integer arguments used as indices are within their axis, integers from
        which indices are computed are 0, and divisors are nonzero. None for random ones only.
    work_dir : str | os.PathLike[str] | None
        Directory of the database and of the library, ``kernel.so``. Another call with the same
        directory continues the tuning; a call with another kernel is refused. None for a new
        temporary directory.
    strategy : SearchStrategy | None
        The search strategy. None for ``DropletStrategy(stop=stop)``.
    space : SpaceGenerator | Callable[[Schedule], Any] | str
        The design space, as in ``ms.tune_tir``.
    tracker : str | None
        ``HOST:PORT`` of a TVM RPC tracker, whose servers then measure, check and time all
        schedules. This machine still builds them. None for this machine.
    key : str | None
        The key of the servers at the tracker.
    name : str
        The kernel's name in messages.
    callbacks : Sequence[MeasureCallback]
        Called for each batch, after TVM's own callbacks.
    progress : Callable[[str], None] | "auto" | None
        "auto" shows a table if standard error is a terminal, and prints lines otherwise. A callable
        receives the lines, at most one every five seconds. None for no output.
    seed : int
        Seed of all random choices.

    Returns
    -------
    result : KernelResult
        The fastest of the best schedules whose outputs match the unscheduled kernel, or the
        unscheduled kernel itself if it is faster. A GPU cannot run the unscheduled kernel, so its
        outputs are compared with a CPU run. A first Ctrl-C, or SIGTERM, ends the tuning and returns
        the best schedule so far.

    Raises
    ------
    KernelError
        If an argument is not as expected, another process tunes in the directory, or no schedule
        could be measured. The message says what to do.
    RuntimeError
        If this is not Linux.
    """
    started = time.monotonic()
    check_limits(threads, trials, seed, time_budget_s, stop, patience, target_latency_us)
    if strategy is not None and not isinstance(strategy, SearchStrategy):
        raise KernelError(f"strategy is {strategy!r}, expected None or a SearchStrategy")
    module = module_of(mod)
    arguments = arguments_of(module)
    refuse_empty(module)
    roles = integer_roles(module)
    arrays = random_arrays(arguments, seed, inputs, roles)
    folder, allocate = _given_arguments(measured_values(arguments, arrays, inputs, roles))
    fleet = fleet_of(tracker, key, threads, allocate)
    if fleet is not None and isinstance(target, str) and target == "auto":
        target = fleet.target()
    if work_dir is None:
        work_dir = tempfile.mkdtemp(prefix="droplet_kernel_")
    with refusing_full_disks(work_dir):
        try:
            if fleet is None:
                check_threads(threads)
            known = kernel_target(target, threads, here=fleet is None)
            known = begun_target(work_dir, target, known)
            reference = cpu_target("auto", threads) if runs_on(known) != "cpu" else None
            directory = open_work_dir(work_dir, known, threads)
        except ModelError as error:
            raise KernelError(str(error)) from error
    held = only_writer(directory, KernelError)
    with folder, refusing_full_disks(directory), held, worker_threads(threads):
        refuse_another_kernel(directory, module)
        remove_left_checks(directory)
        for torn in mend_torn_end(directory):
            message(progress)(f"{name}: the torn last line of {torn} was cut off")
        request = StopRequest(math.inf if time_budget_s is None else started + time_budget_s)
        rules = StopRules(
            lambda: "interrupt" if request.is_asked else "time" if request.is_due else "",
            patience,
            None if target_latency_us is None else 1e-6 * target_latency_us,
        )
        run = KernelRun(module, known, directory, name, seed, fleet, allocate)
        with request.on_interrupt():
            why_ended = run.tune(
                trials, rules, strategy or DropletStrategy(stop=stop), space, callbacks, progress
            )
            tolerances = [tolerance(one.numpy_dtype, summed(module)) for one in arguments]
            refuse_lost_fleet(fleet, directory, run.known + run.measured)
            pool = verifying_pool(known)
            try:
                with tempfile.TemporaryDirectory(prefix=CHECKS, dir=directory) as work:
                    there = None if fleet is None else fleet.run
                    verifier = Verifier(
                        Path(work), known, arguments, arrays, tolerances, pool, there, reference
                    )
                    chosen = run.choose(verifier, why_ended)
                    chosen.library.replace(directory / LIBRARY)
                peak = write_machine(directory, threads, _elsewhere(known, fleet))
            finally:
                pool.close()
                if fleet is not None:
                    fleet.close()
        result = KernelResult(
            name=name,
            arguments=arguments,
            target=known,
            mod_before=module,
            library=directory / LIBRARY,
            mod=chosen.schedule.mod,
            trace=str(chosen.schedule.trace),
            time=chosen.time,
            untuned=chosen.untuned,
            flop=flop_of(module),
            peak_gflops=peak,
            is_untuned=chosen.is_untuned,
            verified=chosen.verdict.is_right is True,
            reason=chosen.verdict.reason,
            deviation=chosen.verdict.deviation,
            trials=run.measured,
            known_trials=run.known,
            failures=dict(run.failures),
            wrong=tuple(chosen.wrong),
            unchecked=tuple(chosen.unchecked),
            # A signal during the check ends what the caller does next, too.
            why_ended="interrupt" if request.is_asked else why_ended,
            forecast=run.forecast,
            work_dir=directory,
        )
        result.keep()
    return result


def _given_arguments(
    values: Mapping[int, np.ndarray],
) -> tuple[AbstractContextManager[Any], GivenArguments | None]:
    """Return a folder for the values, and the allocator of candidates' arguments that uses it."""
    if not values:
        return nullcontext(), None
    folder = tempfile.TemporaryDirectory(prefix="droplet_inputs_")
    return folder, GivenArguments(Path(folder.name) / "inputs.npz", values)


def _elsewhere(target: Target, fleet: Fleet | None) -> str | None:
    """The name of the servers or the GPU that measure; None for this machine's CPU."""
    if fleet is not None:
        return fleet.name
    return None if runs_on(target) == "cpu" else device_name()


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
