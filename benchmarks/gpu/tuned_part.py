# SPDX-License-Identifier: Apache-2.0
"""One part of the GPU run, in a process of its own: a workload tuned by one strategy."""

import argparse
import os
import random
import shutil
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..searches.layers import make_module
from .parts import gpu_target, measuring, part_parser
from .rows import Rows, card, last_words
from .workloads import WORKLOADS

STRATEGIES = ("droplet", "evolutionary", "random")
"""``random`` measures launchable random schedules until it is stopped."""

ENDLESS = 100_000
RANDOM_BATCH = 2 * (os.cpu_count() or 1)
"""Number of random schedules per batch. The batch in progress is lost when the time ends."""


def main(argv: Sequence[str] | None = None) -> None:
    """Tune, and write a row for each trial."""
    parser = part_parser(__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("strategy", choices=STRATEGIES)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--roomy", action="store_true", help="builds may take all memory")
    tune(parser.parse_args(argv))


def tune(args: argparse.Namespace) -> None:
    """Tune the workload of the arguments, with the database in ``WORK/WORKLOAD-STRATEGY``."""
    from tvm.s_tir import meta_schedule as ms
    from tvm_droplet_ms.display.phases import quiet_tvm

    names = {"workload": args.workload, "strategy": args.strategy, "seed": args.seed}
    rows = Rows(args.out, {**card(), **names})
    target = gpu_target(args.target)
    work = args.work / f"{args.workload}-{args.strategy}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # TVM's cost model draws from NumPy's global generator during its warm-up.
    np.random.seed(args.seed)
    random.seed(args.seed)
    tools = measuring(target, args.workers, roomy=args.roomy)
    is_random = args.strategy == "random"
    begun = time.perf_counter()
    with ms.Profiler() as profiler, quiet_tvm():
        ms.tune_tir(
            make_module(WORKLOADS[args.workload]),
            target,
            str(work),
            max_trials_global=ENDLESS if is_random else args.trials,
            num_trials_per_iter=RANDOM_BATCH if is_random else args.batch,
            cost_model="xgb" if args.strategy == "evolutionary" else "random",
            measure_callbacks=[_writer(rows, begun), *ms.MeasureCallback.create("default")],
            strategy=_strategy(args.strategy),
            seed=args.seed,
            **tools,
        )
    scopes = {str(name): round(float(secs), 3) for name, secs in profiler.get().items()}
    rows.write(
        "tuned",
        wall=time.perf_counter() - begun,
        scopes=scopes,
        build_failures=dict(tools["builder"].stats.failures),
        run_failures=dict(tools["runner"].stats.failures),
        hopeless=tools["runner"].stats.hopeless,
    )


def _strategy(name: str) -> Any:
    if name == "evolutionary":
        return name
    from tvm_droplet_ms import DropletStrategy

    # The shipped prior and formulas are for CPUs. "droplet" keeps the defaults, as a user would.
    options: dict[str, Any] = {"explore_trials": ENDLESS, "explorer": "random"}
    return DropletStrategy(stop=None, **(options if name == "random" else {}))


def _writer(rows: Rows, begun: float) -> Any:
    """A measure callback that writes a row for each trial."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback

    count = 0

    @derived_object
    class WriteTrials(PyMeasureCallback):  # type: ignore[misc]
        def apply(self, scheduler, task_id, candidates, builds, results):  # type: ignore
            nonlocal count
            elapsed = round(time.perf_counter() - begun, 3)
            for result in results:
                count += 1
                secs = [float(value) for value in result.run_secs or ()]
                error = {"error": last_words(str(result.error_msg))} if result.error_msg else {}
                mean = sum(secs) / len(secs) if secs else None
                rows.write(
                    "trial", trial=count, seconds=mean, repeats=len(secs), elapsed=elapsed, **error
                )

    return WriteTrials()


if __name__ == "__main__":
    main()
