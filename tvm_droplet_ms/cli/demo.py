# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms demo``: tunes two kernels with ``tune_kernel``, and prints a table."""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import command, ending_at_once, fail, seed, whole

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

    from ..tuning.kernel import KernelResult

_FEW_TRIALS = 16
"""With fewer trials, only half of them explore, so that the demo also shows a descent."""

_PHASES = """\
Phase "explore" measures schedules from the whole design space. Phase "descend" measures changes
to the fastest schedule found so far: a Gaussian process predicts which of them are faster.
"""

_HEADER = (
    *("kernel", "untuned", "after exploration", "tuned", "faster than untuned"),
    *("trials explored", "trials descended", "of BLAS"),
)

_trials = whole(
    2,
    "is not a number of trials: expected an integer of at least 2, one to explore and one to "
    "descend",
)


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    demo = command(
        commands, "demo", _run, "tune a matmul and a 3x3 convolution for this machine's CPU"
    )
    demo.add_argument(
        "--trials", type=_trials, default=40, help="measurements per kernel (default: %(default)s)"
    )
    demo.add_argument(
        "--seed",
        type=seed,
        default=0,
        help="seed of the search and the inputs (default: %(default)s)",
    )
    demo.add_argument(
        "--work-dir",
        help="directory of a folder per kernel, with its database and TVM's logs; a run in the "
        "same directory continues (default: a new temporary directory, which is kept)",
    )
    demo.add_argument("--profile", action="store_true", help="print where the tuning time went")


def _run(options: argparse.Namespace) -> int:
    """Tune a matmul and a 3x3 convolution for this machine's CPU with the defaults of this
    package. Check the outputs of the tuned kernels against the untuned ones. Print the speed
    before tuning, after exploration and after the descent."""
    if not sys.platform.startswith("linux"):
        reason = f"it needs Linux, because its builder and runner do; this is {sys.platform}"
        return fail("demo", reason)
    directory = Path(options.work_dir or tempfile.mkdtemp(prefix="droplet-ms-demo-"))
    advice = f"droplet-ms demo --work-dir {shlex.quote(str(directory))} --trials {options.trials}"
    with ending_at_once(advice):
        print(f"{options.trials} trials each; work directory: {directory}")
        print(_PHASES, flush=True)
        return _tune(options, directory, advice)


def _tune(options: argparse.Namespace, directory: Path, advice: str) -> int:
    """Tune the kernels and print their results; returns the exit status."""
    from ..display.tables import align, format_profile
    from ..host import tvm_num_threads
    from ..measure.profile import TuningProfile
    from ..search_strategy import DropletStrategy
    from ..tuning.kernel import KernelError, KernelInterrupted, tune_kernel

    threads = tvm_num_threads()
    blas, rate = _blas_gflops(threads)
    explored = options.trials // 2 if options.trials < _FEW_TRIALS else None
    rows: list[tuple[str, ...]] = [_HEADER]
    profile = TuningProfile()
    for name, kernel in demo_kernels().items():
        try:
            with profile:
                result = tune_kernel(
                    kernel,
                    threads=threads,
                    trials=options.trials,
                    work_dir=directory / name,
                    strategy=DropletStrategy(explore_trials=explored),
                    name=name,
                    seed=options.seed,
                )
        except KernelInterrupted as error:
            print(f"droplet-ms demo: {error}: {advice}", file=sys.stderr)
            return 130
        except KernelError as error:
            return fail("demo", error)
        print(f"{result}\n", flush=True)
        if result.why_ended == "interrupt":
            print(f"interrupted; what is measured is kept. To go on: {advice}", file=sys.stderr)
            return 130
        rows.append(_row(result, blas))
    print("GFLOP/s, the median over several processes; after exploration: of its fastest record.")
    print(align(rows))
    print(f"\n{result.target}, {threads} thread(s), {rate}")
    if options.profile:
        print(f"\nWhere the time went:\n{format_profile(profile.parts())}")
    return 0


def demo_kernels() -> "dict[str, PrimFunc]":
    """A matrix multiplication and a padded 3x3 convolution in NHWC, both in float32."""
    from tvm import te
    from tvm.s_tir.meta_schedule.testing import te_workload

    convolution = te_workload.conv2d_nhwc(1, 56, 56, 64, 64, kernel_size=3, padding=1)
    return {
        "matmul": te.create_prim_func(te_workload.matmul(512, 512, 512)),
        "conv2d_3x3": te.create_prim_func(convolution),
    }


def _row(result: "KernelResult", blas: float | None) -> tuple[str, ...]:
    """The cells of a kernel: rates in GFLOP/s, and the trials of all runs by phase."""
    from .report.history import read_events, read_history

    (task,) = read_history(result.work_dir)
    events = read_events(result.work_dir)
    descends = events.descends_after[:1] if events else []
    explored = min([*descends, len(task.trials)])
    untuned = result.untuned and result.untuned.secs
    return (
        result.name,
        f"{result.flop / untuned / 1e9:.1f}" if untuned else "unknown",
        f"{result.flop / task.best_so_far[explored - 1] / 1e9:.1f}",
        f"{result.gflops:.1f}",
        f"{untuned / result.time.secs:.1f}x" if untuned else "unknown",
        str(explored),
        str(len(task.trials) - explored),
        "unknown" if blas is None else f"{100 * result.gflops / blas:.0f}%",
    )


def _blas_gflops(threads: int) -> tuple[float | None, str]:
    """The rate of NumPy's BLAS, None if it is unknown, and a text about it."""
    from ..host import blas_gflops

    try:
        rate = blas_gflops(threads)
    except RuntimeError as error:
        return None, f"BLAS rate unknown: {error}"
    return rate, f"NumPy's BLAS {rate:.1f} GFLOP/s with as many threads"
