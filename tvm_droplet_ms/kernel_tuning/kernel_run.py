# SPDX-License-Identifier: Apache-2.0
"""Tune a single kernel, check its best schedules, and hand over the fastest right one."""

import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy
from tvm.s_tir.meta_schedule.space_generator import SpaceGenerator
from tvm.target import Target
from tvm.tirx import PrimFunc

from ..compat import fast_tune_contexts
from ..compat.design_space import sound_space
from ..display import ProgressCallback, RunState, TaskState, run_display
from ..display.displays import Progress, message
from ..display.phases import followed_phases
from ..display.state import shortened
from ..measure import fast_measure
from ..measure.allocation import GivenArguments
from ..progress import quiet_tvm
from ..search_strategy import DropletStrategy
from ..search_strategy.history import is_for_target, is_unmeasured, mean, valid_secs
from ..session.database import open_database
from ..session.errors import ModelError
from ..session.one_writer import SecondWriterError, only_writer
from ..session.stop import StopRequest
from ..session.target import cpu_target
from ..session.threads import worker_threads
from ..session.torn_database import mend_torn_end
from ..session.work_dir import open_work_dir
from .call import check_limits, module_of, refuse_empty
from .check.arguments import arguments_of, measured_values, random_arrays, summed, tolerance
from .check.integer_roles import integer_roles
from .check.verification import Verifier, verifying_pool
from .choice import Choice, Chosen
from .errors import KernelError
from .faults import (
    CHECKS,
    check_written,
    nothing_measured,
    refuse_another_kernel,
    refusing_full_disks,
    remove_left_checks,
)
from .fleet import Fleet, fleet_of, refuse_lost_fleet, target_of
from .flop import flop_of
from .kernel_result import KernelResult
from .machine import write_machine
from .records import count_records, read_records
from .stop_rules import StopRules
from .stoppable_strategy import StoppableStrategy

LIBRARY = "kernel.so"
"""The file of the work directory that holds the winner."""


def tune_kernel(
    mod: IRModule | PrimFunc,
    *,
    target: str | Mapping[str, Any] | Target = "auto",
    threads: int = 1,
    trials: int = 64,
    time_budget_s: float | None = None,
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
    """Tune a kernel for a CPU, and check the result.

    Parameters
    ----------
    mod : IRModule | PrimFunc
        The kernel: a function of buffers of constant shapes, such as ``te.create_prim_func``
        makes, or a module whose function ``main`` it is. Without a schedule.
    target : str | Mapping[str, Any] | Target
        "auto" for this machine's CPU, or a target of kind ``llvm`` that this machine runs. With a
        tracker, the CPU of its servers.
    threads : int
        Threads of the kernel.
    trials : int
        Schedules to measure, those of earlier runs in the directory included. 0 measures none.
    time_budget_s : float | None
        Seconds of wall clock to tune for; the batch that is being measured is finished, and the
        best schedules are checked. None for no limit.
    patience : int | None
        Trials without a gain after which to end. None for no limit.
    target_latency_us : float | None
        Microseconds of the kernel at which to end. None for none.
    inputs : Mapping[str, np.ndarray] | None
        Values of arguments by name, such as indices, for the measuring and the check. Others are
        random: integers that the kernel takes as indices are indices of their axis, those that it
        computes indices from are 0, and those that it divides by are not.
    work_dir : str | os.PathLike[str] | None
        Directory of the database and of the library, ``kernel.so``. Another call with the same
        directory goes on; one with another kernel is refused. None for a new temporary one.
    strategy : SearchStrategy | None
        The search. None for ``DropletStrategy()``.
    space : SpaceGenerator | Callable[[Schedule], Any] | str
        The design space, as ``ms.tune_tir`` takes it.
    tracker, key : str | None
        ``HOST:PORT`` of an RPC tracker of TVM and the key of its servers, which then measure, check
        and time everything. This machine builds. None for this machine.
    name : str
        The kernel's name in messages.
    callbacks : Sequence[MeasureCallback]
        Told each batch, after TVM's own.
    progress : Callable[[str], None] | "auto" | None
        "auto" for a table on the standard error where that is a terminal, and lines elsewhere. Or
        what is told the lines, one at most every five seconds; None for silence.
    seed : int
        Seed of the search and of the random inputs.

    Returns
    -------
    result : KernelResult
        The fastest of the best schedules whose outputs are those of the kernel without a schedule;
        that kernel itself where it is faster. A first Ctrl-C, or SIGTERM, ends the tuning and
        returns the best so far.

    Raises
    ------
    KernelError
        If an argument is not as expected, another process tunes in the directory, or no schedule
        could be measured; says what to do.
    RuntimeError
        If this is not Linux.
    """
    started = time.monotonic()
    check_limits(threads, trials, time_budget_s, patience, target_latency_us)
    module = module_of(mod)
    arguments = arguments_of(module)
    refuse_empty(module)
    roles = integer_roles(module)
    arrays = random_arrays(arguments, seed, inputs, roles)
    folder, allocate = _given_arguments(measured_values(arguments, arrays, inputs, roles))
    fleet = fleet_of(tracker, key, threads, allocate)
    target = target_of(target, fleet)
    work_dir = work_dir or tempfile.mkdtemp(prefix="droplet_kernel_")
    with refusing_full_disks(work_dir):
        try:
            cpu = cpu_target(target, threads)
            directory = open_work_dir(work_dir, cpu, threads)
        except ModelError as error:
            raise KernelError(str(error)) from error
    with (
        folder,
        refusing_full_disks(directory),
        _only_writer(directory),
        worker_threads(threads),
    ):
        refuse_another_kernel(directory, module)
        remove_left_checks(directory)
        for torn in mend_torn_end(directory):
            message(progress)(f"{name}: the torn last line of {torn} was cut off")
        stop = StopRequest(math.inf if time_budget_s is None else started + time_budget_s)
        rules = StopRules(
            lambda: "interrupt" if stop.is_asked else "time" if stop.is_due else "",
            patience,
            None if target_latency_us is None else 1e-6 * target_latency_us,
        )
        run = _Run(module, cpu, directory, name, seed, fleet, allocate)
        with stop.on_interrupt():
            why_ended = run.tune(
                trials, rules, strategy or DropletStrategy(), space, callbacks, progress
            )
            tolerances = [tolerance(one.numpy_dtype, summed(module)) for one in arguments]
            refuse_lost_fleet(fleet, directory, run.known + run.measured)
            pool = verifying_pool()
            try:
                with tempfile.TemporaryDirectory(prefix=CHECKS, dir=directory) as work:
                    there = None if fleet is None else fleet.run
                    verifier = Verifier(Path(work), cpu, arguments, arrays, tolerances, pool, there)
                    chosen = run.choose(verifier, why_ended)
                    chosen.library.replace(directory / LIBRARY)
                peak = write_machine(directory, threads, None if fleet is None else fleet.name)
            finally:
                pool.close()
                if fleet is not None:
                    fleet.close()
        result = KernelResult(
            name=name,
            arguments=arguments,
            target=cpu,
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
            trials=run.trials,
            known_trials=run.known,
            failures=dict(run.failures),
            wrong=tuple(chosen.wrong),
            why_ended=why_ended,
            work_dir=directory,
        )
        result.keep()
    return result


class _Run:
    """One run of ``tune_kernel``."""

    def __init__(
        self,
        module: IRModule,
        target: Target,
        directory: Path,
        name: str,
        seed: int,
        fleet: Fleet | None,
        allocate: GivenArguments | None,
    ) -> None:
        self._module = module
        self._target = target
        self._directory = directory
        self._name = name
        self._seed = seed
        self._fleet = fleet
        self._allocate = allocate
        self._database = _open(directory)
        self.trials = 0
        self.measured = 0
        self.failures: Counter[str] = Counter()
        self.known = sum(not is_unmeasured(record.run_secs) for _, record in self._records())

    def _records(self) -> list[tuple[int, TuningRecord]]:
        """The records of the kernel for the target, with their positions in the file."""
        workload = structural_hash(self._module)
        return [
            (position, record)
            for position, record in read_records(self._directory)
            if is_for_target(record, self._target)
            and structural_hash(record.workload.mod) == workload
        ]

    def tune(
        self,
        trials: int,
        rules: StopRules,
        strategy: SearchStrategy,
        space: SpaceGenerator | Callable[[Schedule], Any] | str,
        callbacks: Sequence[MeasureCallback],
        progress: Progress,
    ) -> str:
        """Measure what is left of the trials; returns why that ended."""
        times = [secs for _, record in self._records() if (secs := valid_secs(record.run_secs))]
        rules.best_secs = min(map(mean, times), default=math.inf)
        left = trials - self.known
        if left <= 0:
            return "trials"
        if rules.reason:
            return rules.reason
        task = TaskState(self._name, trials, self.known, rules.best_secs)
        display = run_display(self._directory, progress)
        written = count_records(self._directory)

        def on_batch(results: Sequence[RunnerResult]) -> None:
            # TVM writes a batch after this call, and does not say where it could not.
            if count_records(self._directory) < written + self.trials:
                rules.fail("disk")
            if self._fleet is not None and self._fleet.runner.fault:
                rules.fail("fleet")
            self.trials += len(results)
            self.measured += sum(not is_unmeasured(result.run_secs) for result in results)
            for result in results:
                if result.error_msg is not None:
                    self.failures[shortened(str(result.error_msg))] += 1

        measure = (
            fast_measure(self._target, f_alloc_argument=self._allocate, process_wide=False)
            if self._fleet is None
            else self._fleet.measure()
        )
        try:
            with fast_tune_contexts(), quiet_tvm(), followed_phases(task):
                ms.tune_tir(
                    self._module,
                    self._target,
                    str(self._directory),
                    max_trials_global=left,
                    database=self._database,
                    strategy=StoppableStrategy(strategy, rules, on_batch),
                    space=sound_space(space, self._module, self._target),
                    cost_model="none",
                    measure_callbacks=[
                        *MeasureCallback.create("default"),
                        *callbacks,
                        ProgressCallback(display, RunState([task]), {0: self._name}),
                    ],
                    seed=self._seed,
                    **measure,
                )
        except RuntimeError:
            refuse_lost_fleet(self._fleet, self._directory, self.known + self.measured)
            raise
        except ValueError as error:
            raise KernelError(f"{self._name} could not be tuned: {error}") from error
        finally:
            display.close()
            for part in measure.values():
                part.close()
        why_ended = rules.reason or ("trials" if self.trials >= left else "converged")
        check_written(self._directory, written + self.trials)
        return why_ended

    def choose(self, verifier: Verifier, why_ended: str) -> Chosen:
        """Choose among the records with a valid time; see ``Choice``."""
        timed = [
            (mean(secs), position, record)
            for position, record in self._records()
            if (secs := valid_secs(record.run_secs))
        ]
        if not timed:
            raise nothing_measured(
                self._name,
                [argument.name for argument in arguments_of(self._module)],
                self._target,
                self._directory,
                self.known,
                self.failures,
                why_ended,
            )
        timed.sort(key=lambda row: row[:2])
        ranked = [(position, record) for _, position, record in timed]
        return Choice(self._name, self._module, self._directory, verifier).choose(ranked)


def _given_arguments(
    values: Mapping[int, np.ndarray],
) -> tuple[AbstractContextManager[Any], GivenArguments | None]:
    """What allocates the arguments of candidates, and the folder that it needs meanwhile."""
    if not values:
        return nullcontext(), None
    folder = tempfile.TemporaryDirectory(prefix="droplet_inputs_")
    return folder, GivenArguments(Path(folder.name) / "inputs.npz", values)


def _open(directory: Path) -> Database:
    try:
        return open_database(directory)
    except (OSError, ValueError) as error:
        raise KernelError(str(error)) from error


@contextmanager
def _only_writer(directory: Path) -> Iterator[None]:
    try:
        with only_writer(directory):
            yield
    except SecondWriterError as error:
        raise KernelError(str(error)) from error
