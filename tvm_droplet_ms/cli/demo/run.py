# SPDX-License-Identifier: Apache-2.0
"""The demo: tunes two kernels for the host CPU, checks them, and shows the gain of each phase."""

import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tvm_ffi import structural_equal

from tvm.ir import IRModule
from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ...display.progress import PhaseSummary, quiet_tvm, show_progress
from ...display.tables import format_profile
from ...host import blas_gflops, host_target, tvm_num_threads
from ...measure import build_scheduled, fast_measure
from ...measure.profile import TuningProfile
from ...search_strategy import DropletStrategy
from ...search_strategy.published.candidates import is_for_target
from ...session.database import writing_database
from ...session.one_writer import SecondWriterError
from .kernels import (
    DemoError,
    Kernel,
    check_outputs,
    demo_kernels,
    scheduled,
    time_in_alternation,
)
from .report import KernelRow, format_table

_FEW_TRIALS = 16
"""With fewer trials, only half of them explore, so that the demo also shows a descent."""

_ROUNDS = 7
"""Timings of each module, taken in alternation."""

_MIN_REPEAT_MS = 50
"""Minimum duration of each timing, in milliseconds."""

_PHASES = """\
Phase "explore" measures schedules from the whole design space. Phase "descend" measures changes
to the fastest schedule found so far: a Gaussian process predicts which of them are faster.
"""

INTERRUPTED = 130
"""Exit status after an interruption: 128 + SIGINT."""


def run_demo(*, trials: int, seed: int, work_dir: str | None, verbose: bool, profile: bool) -> None:
    """Tune, check and measure the kernels of the demo, and print a table; see its options.

    Raises ``DemoError`` if the database does not open, if another process tunes in the directory,
    if no candidate of a kernel could be measured, or if the output of a tuned kernel differs from
    the output of the untuned kernel. An interruption (SIGINT) ends the process with status 130.
    """
    start = time.time()
    directory = Path(work_dir or tempfile.mkdtemp(prefix="droplet-ms-demo-"))
    with ExitStack() as held:
        try:
            database = held.enter_context(writing_database(directory))
        except (OSError, ValueError, SecondWriterError) as error:
            raise DemoError(str(error)) from error
        _run(directory, database, start, trials, seed, verbose, profile)


def _run(
    directory: Path,
    database: ms.database.Database,
    start: float,
    trials: int,
    seed: int,
    verbose: bool,
    profile: bool,
) -> None:
    kernels = demo_kernels()
    target = host_target()
    with _exit_when_interrupted(directory):
        print(f"Tuning {', '.join(kernel.name for kernel in kernels)} for {target}")
        print(f"{trials} trials each; work directory: {directory}")
        print(_PHASES, flush=True)
        measure = fast_measure(target)
        tuning = TuningProfile(**measure)
        best: dict[str, Trace] = {}
        with show_progress({kernel.name: kernel.flop for kernel in kernels}, start=start) as phases:
            for kernel in kernels:
                with tuning, nullcontext() if verbose else quiet_tvm():
                    _tune(kernel, target, directory, database, trials, seed, measure)
                trace = _best_trace(kernel, target, database)
                if trace is None:
                    raise DemoError(
                        f"no candidate of {kernel.name} could be measured for {target}: "
                        f"{phases.last_warning or 'the search proposed none'}"
                    )
                best[kernel.name] = trace
        print("Checking the outputs against the untuned kernels, and timing the results again ...")
        for part in measure.values():
            part.close()
        rows = [
            _row(kernel, target, phases.tasks[kernel.name], best[kernel.name], seed)
            for kernel in kernels
        ]
        _print_report(rows, target)
        if profile:
            print("\nWhere the time went, up to the last measured trial:")
            print(format_profile(tuning.parts()))
        print(f"\nwall time {time.time() - psutil.Process().create_time():.0f} s", flush=True)


@contextmanager
def _exit_when_interrupted(directory: Path) -> Iterator[None]:
    """End the process on SIGINT, and print the command that continues the run.

    A ``KeyboardInterrupt`` cannot pass through TVM's C++: it causes a segmentation fault during
    TVM's evolutionary search and a ``RuntimeError`` during a build. Exiting at once loses nothing,
    because the database appends whole lines.
    """

    def leave(_signal: int, _frame: object) -> None:
        message = (
            "\nInterrupted. The measurements are kept. To continue:\n"
            f"  droplet-ms demo --work-dir {shlex.quote(str(directory))}\n"
        )
        # The terminal interrupts the worker processes too. Let them print their tracebacks first.
        time.sleep(0.5)
        # print() is unsafe here, because its buffer may be in use.
        os.write(sys.stderr.fileno(), message.encode())
        os._exit(INTERRUPTED)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _strategy(trials: int) -> DropletStrategy:
    return DropletStrategy(explore_trials=trials // 2 if trials < _FEW_TRIALS else None)


def _tune(
    kernel: Kernel,
    target: Target,
    directory: Path,
    database: ms.database.Database,
    trials: int,
    seed: int,
    measure: Mapping[str, Any],
) -> None:
    ms.tune_tir(
        IRModule({kernel.name: kernel.mod["main"]}),
        target,
        str(directory),
        max_trials_global=trials,
        database=database,
        strategy=_strategy(trials),
        cost_model="none",
        seed=seed,
        **measure,
    )


def _best_trace(kernel: Kernel, target: Target, database: ms.database.Database) -> Trace | None:
    """The trace of the fastest record for the target; None if there is no valid record."""
    workload = database.commit_workload(kernel.mod)
    for record in database.get_top_k(workload, len(database)):
        if is_for_target(record, target):
            return record.trace
    return None


def _row(kernel: Kernel, target: Target, phases: PhaseSummary, best: Trace, seed: int) -> KernelRow:
    """Check and time a kernel: untuned, after exploration, and after the descent."""
    descended = scheduled(kernel, best)
    explored = scheduled(kernel, phases.explored or best)
    mods = [kernel.mod, explored]
    if not structural_equal(explored, descended):
        mods.append(descended)
    modules = [build_scheduled(mod, target) for mod in mods]
    rng = np.random.default_rng(seed)
    *inputs, out_shape = kernel.shapes
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in inputs]
    arrays.append(np.zeros(out_shape, dtype=np.float32))
    check_outputs(kernel.name, modules, arrays)
    secs = time_in_alternation(modules, arrays, rounds=_ROUNDS, min_repeat_ms=_MIN_REPEAT_MS)
    return KernelRow(
        kernel=kernel.name,
        flop=kernel.flop,
        untuned_secs=secs[0],
        explored_secs=secs[1],
        descended_secs=secs[2] if len(secs) > 2 else None,
        explore_trials=phases.trials["explore"],
        descend_trials=phases.trials["descend"],
    )


def _print_report(rows: Sequence[KernelRow], target: Target) -> None:
    num_threads = tvm_num_threads()
    try:
        blas: float | None = blas_gflops(num_threads)
        rate = f"NumPy's BLAS {blas:.1f} GFLOP/s"
    except RuntimeError as error:
        blas, rate = None, f"BLAS rate unknown: {error}"
    print(f"\nGFLOP/s, median of {_ROUNDS} timings. Gain of descent: median and range of ratios.")
    print(format_table(rows, blas))
    print(f"\n{target}, {num_threads} thread(s), {rate} with as many threads")
