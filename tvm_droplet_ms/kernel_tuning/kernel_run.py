# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Tune a single kernel, check its best schedules, and hand over the fastest right one."""

import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy
from tvm.s_tir.meta_schedule.space_generator import SpaceGenerator
from tvm.target import Target
from tvm.tirx import PrimFunc

from ..compat import fast_tune_contexts
from ..database import open_database
from ..measure import TaskFailed, fast_measure
from ..one_writer import SecondWriterError, only_writer
from ..progress import quieten_tvm
from ..search_strategy import DropletStrategy
from ..search_strategy.history import is_for_target, is_unmeasured, mean, valid_secs
from ..tuning.errors import ModelError
from ..tuning.stop import StopRequest
from ..tuning.target import cpu_target
from ..tuning.torn_database import mend_torn_end
from ..tuning.work_dir import open_work_dir
from .arguments import arguments_of, random_arrays, summed, tolerance
from .faults import (
    CHECKS,
    check_written,
    nothing_measured,
    refusing_full_disks,
    remove_left_checks,
)
from .kernel_result import KernelError, KernelResult
from .progress_lines import ProgressLines, show_nothing
from .records import FAILED_SECS, correct_times, count_records, read_records
from .stop_rules import StopRules
from .stoppable_strategy import StoppableStrategy
from .verification import CannotCheck, KernelTime, Verdict, Verifier, verifying_pool

BEST = 5
"""The best schedules that are checked and timed again: what was measured once may be lucky."""

LIBRARY = "kernel.so"
"""The file of the work directory that holds the winner."""

_NAME = "main"


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
    name: str = "kernel",
    progress: Callable[[str], None] | None = print,
    seed: int = 0,
) -> KernelResult:
    """Tune a kernel for a CPU of this machine, and check the result.

    Parameters
    ----------
    mod : IRModule | PrimFunc
        The kernel: a function of buffers of constant shapes, such as ``te.create_prim_func``
        makes, or a module whose function ``main`` it is. Without a schedule.
    target : str | Mapping[str, Any] | Target
        "auto" for this machine's CPU, or a target of kind ``llvm`` that this machine runs.
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
        Values of arguments by name for the check, such as indices. Others are random.
    work_dir : str | os.PathLike[str] | None
        Directory of the database and of the library, ``kernel.so``. Another call with the same
        directory goes on. None for a new temporary one.
    strategy : SearchStrategy | None
        The search. None for ``DropletStrategy()``.
    space : SpaceGenerator | Callable[[Schedule], Any] | str
        The design space, as ``ms.tune_tir`` takes it.
    name : str
        The kernel's name in messages.
    progress : Callable[[str], None] | None
        Told a line at most every five seconds; None for silence.
    seed : int
        Seed of the search and of the random inputs.

    Returns
    -------
    result : KernelResult
        The fastest of the best schedules whose outputs are those of the kernel without a schedule.
        A first Ctrl-C, or SIGTERM, ends the tuning and returns the best so far.

    Raises
    ------
    KernelError
        If an argument is not as expected, another process tunes in the directory, or no schedule
        could be measured; says what to do.
    RuntimeError
        If this is not Linux.
    """
    started = time.monotonic()
    _check_numbers(threads, trials, time_budget_s, patience, target_latency_us)
    module = _module(mod)
    arguments = arguments_of(module)
    arrays = random_arrays(arguments, seed, inputs)
    work_dir = work_dir or tempfile.mkdtemp(prefix="droplet_kernel_")
    with refusing_full_disks(work_dir):
        try:
            cpu = cpu_target(target, threads)
            directory = open_work_dir(work_dir, cpu, threads)
        except ModelError as error:
            raise KernelError(str(error)) from error
    with refusing_full_disks(directory), _only_writer(directory):
        remove_left_checks(directory)
        for torn in mend_torn_end(directory):
            (progress or show_nothing)(f"{name}: the torn last line of {torn} was cut off")
        stop = StopRequest(math.inf if time_budget_s is None else started + time_budget_s)
        rules = StopRules(
            lambda: "interrupt" if stop.is_asked else "time" if stop.is_due else "",
            patience,
            None if target_latency_us is None else 1e-6 * target_latency_us,
        )
        run = _Run(module, cpu, directory, name, seed)
        with stop.on_interrupt():
            run.tune(trials, rules, strategy or DropletStrategy(), space, progress)
            tolerances = [tolerance(one.numpy_dtype, summed(module)) for one in arguments]
            pool = verifying_pool()
            try:
                with tempfile.TemporaryDirectory(prefix=CHECKS, dir=directory) as work:
                    verifier = Verifier(Path(work), cpu, arguments, arrays, tolerances, pool)
                    chosen = run.choose(verifier, rules.reason)
                    chosen.library.replace(directory / LIBRARY)
            finally:
                pool.close()
    return KernelResult(
        name=name,
        arguments=arguments,
        target=cpu,
        mod_before=module,
        library=directory / LIBRARY,
        mod=chosen.schedule.mod,
        trace=str(chosen.schedule.trace),
        time=chosen.time,
        untuned=chosen.untuned,
        flop=_flop(module),
        verified=chosen.verdict.is_right is True,
        reason=chosen.verdict.reason,
        deviation=chosen.verdict.deviation,
        trials=run.trials,
        known_trials=run.known,
        failures=dict(run.failures),
        wrong=tuple(chosen.wrong),
        why_ended=rules.reason or ("trials" if run.trials + run.known >= trials else "converged"),
        work_dir=directory,
    )


@dataclass
class _Chosen:
    """The winner, and what was found out beside it."""

    schedule: Schedule
    library: Path
    time: KernelTime
    untuned: KernelTime | None
    verdict: Verdict
    wrong: list[str]


class _Run:
    """One run of ``tune_kernel``."""

    def __init__(
        self, module: IRModule, target: Target, directory: Path, name: str, seed: int
    ) -> None:
        self._module = module
        self._target = target
        self._directory = directory
        self._name = name
        self._seed = seed
        self._database = _open(directory)
        self.trials = 0
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
        progress: Callable[[str], None] | None,
    ) -> None:
        """Measure what is left of the trials."""
        times = [secs for _, record in self._records() if (secs := valid_secs(record.run_secs))]
        rules.best_secs = min(map(mean, times), default=math.inf)
        left = trials - self.known
        if left <= 0 or rules.reason:
            return
        lines = ProgressLines(self._name, trials, self.known, progress or show_nothing)
        written = count_records(self._directory)

        def on_batch(results: Sequence[RunnerResult]) -> None:
            # TVM writes a batch after this call, and does not say where it could not.
            if count_records(self._directory) < written + self.trials:
                rules.fail("disk")
            self.trials += len(results)
            for result in results:
                if result.error_msg is not None:
                    self.failures[str(result.error_msg).strip().partition("\n")[0][:200]] += 1
            lines.batch(len(results), self.failures.total(), rules.best_secs, rules.since_gain)

        quieten_tvm()
        measure = fast_measure(self._target, process_wide=False)
        try:
            with fast_tune_contexts():
                ms.tune_tir(
                    self._module,
                    self._target,
                    str(self._directory),
                    max_trials_global=left,
                    database=self._database,
                    strategy=StoppableStrategy(strategy, rules, on_batch),
                    space=space,
                    cost_model="none",
                    seed=self._seed,
                    **measure,
                )
        except ValueError as error:
            raise KernelError(f"{self._name} could not be tuned: {error}") from error
        finally:
            for part in measure.values():
                part.close()
        lines.end()
        check_written(self._directory, written + self.trials)

    def choose(self, verifier: Verifier, why_ended: str) -> _Chosen:
        """Check the best schedules, and time those that are right beside the untuned kernel."""
        try:
            return self._choose(verifier, why_ended)
        except CannotCheck as error:
            raise KernelError(
                f"the best schedules of {self._name} could not be checked: {error}. The records "
                f"are kept in {str(self._directory)!r}: run again"
            ) from error

    def _choose(self, verifier: Verifier, why_ended: str) -> _Chosen:
        ranked = self._ranked()
        if not ranked:
            raise nothing_measured(
                self._name, self._target, self._directory, self.known, self.failures, why_ended
            )
        reference, unchecked = verifier.expect(self._module)
        libraries: dict[str, Path] = {}
        schedules: dict[str, tuple[int, Schedule, Verdict]] = {}
        wrong: dict[int, str] = {}
        unbuilt: list[str] = []
        for position, record in ranked:
            if len(libraries) == BEST or len(unbuilt) == BEST:
                break
            key = f"best{position}"
            schedule = Schedule(self._module)
            record.trace.apply_to_schedule(schedule, remove_postproc=False)
            try:
                library = verifier.build(key, schedule.mod)
            except TaskFailed as error:
                # It was built before: the machine's fault, so that the record stays.
                unbuilt.append(f"it could not be built again: {error}")
                continue
            verdict = (
                verifier.check(library) if not unchecked else Verdict(None, math.nan, unchecked)
            )
            if verdict.is_right is False:
                wrong[position] = verdict.reason
                continue
            libraries[key], schedules[key] = library, (position, schedule, verdict)
        self._refuse(wrong)
        if not libraries and unbuilt:
            raise CannotCheck(unbuilt[0])
        if not libraries:
            raise KernelError(
                f"none of the {len(wrong)} measured schedules of {self._name} computes what the "
                f"kernel without a schedule does; the first: {next(iter(wrong.values()))}"
            )
        candidates = dict(libraries)
        if reference is not None and not unchecked:
            candidates["untuned"] = reference
        times = verifier.time(candidates)
        best = min(libraries, key=lambda key: times[key].secs)
        position, schedule, verdict = schedules[best]
        correct_times(self._directory, {schedules[key][0]: [times[key].secs] for key in libraries})
        return _Chosen(
            schedule,
            libraries[best],
            times[best],
            times.get("untuned"),
            verdict,
            [*wrong.values(), *unbuilt],
        )

    def _ranked(self) -> list[tuple[int, TuningRecord]]:
        """The records with a valid time, the fastest first."""
        timed = [
            (mean(secs), position, record)
            for position, record in self._records()
            if (secs := valid_secs(record.run_secs))
        ]
        timed.sort(key=lambda row: row[:2])
        return [(position, record) for _, position, record in timed]

    def _refuse(self, wrong: Mapping[int, str]) -> None:
        """Mark wrong schedules as failed, so that TVM does not apply them either."""
        correct_times(self._directory, {position: [FAILED_SECS] for position in wrong})


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


def _module(mod: IRModule | PrimFunc) -> IRModule:
    """A module whose function ``main`` is the kernel."""
    if isinstance(mod, PrimFunc):
        mod = IRModule({_NAME: mod})
    functions = list(mod.functions.items()) if isinstance(mod, IRModule) else []
    if len(functions) != 1 or not isinstance(functions[0][1], PrimFunc):
        raise KernelError(
            f"mod is {type(mod).__name__} with {len(functions)} functions: expected a PrimFunc, or "
            "an IRModule of one; tune() takes whole models"
        )
    # As ``tune_tir`` names it, so that its records are found again.
    func = functions[0][1].with_attr("global_symbol", _NAME).with_attr("tirx.noalias", True)
    return IRModule({_NAME: func})


def _flop(module: IRModule) -> float:
    try:
        return float(estimate_tir_flops(module))
    except Exception:  # TVM raises errors of many types for what it cannot count.
        return math.nan


def _check_numbers(
    threads: int,
    trials: int,
    time_budget_s: float | None,
    patience: int | None,
    target_latency_us: float | None,
) -> None:
    if threads < 1:
        raise KernelError(f"threads is {threads!r}, expected an integer of at least 1")
    if trials < 0:
        raise KernelError(f"trials is {trials!r}, expected an integer of at least 0")
    if patience is not None and patience < 1:
        raise KernelError(f"patience is {patience!r}, expected None or an integer of at least 1")
    for argument, value in (
        ("time_budget_s", time_budget_s),
        ("target_latency_us", target_latency_us),
    ):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise KernelError(f"{argument} is {value!r}, expected None or a positive number")
