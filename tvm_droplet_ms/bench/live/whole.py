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
"""A whole tuning run and where its seconds go: TVM's builder and runner beside fast_measure.

    python -m tvm_droplet_ms.bench.live.whole --out whole      # about 15 minutes on 2 cores

Each run is ``ms.tune_tir`` in a process of its own, with TVM's evolutionary search, the same seed
and the same number of trials. One has ``LocalBuilder()`` and ``LocalRunner()``, the other
``**fast_measure(target)``. The clock starts before Python does and stops when ``tune_tir`` returns;
"whole process" is until the process has ended. The parts:

starting
    until the first proposing: Python, imports, builder and runner, design space.
building, exporting, importing intrinsics
    the seconds of the builder's workers, divided by their number. The last is what LocalBuilder's
    workers import in the first build of every batch.
running
    loading candidates, filling their arguments and timing them.
waiting
    the rest of the time in which the scheduler waits for builder and runner: the start of workers,
    messages, an idle worker, builds that were killed.

The rest is read from the scopes of ``ms.Profiler``. After the runs of a layer, their winners are
rebuilt and timed in turns in one more process, as by ``compare``. A finished run is a file in
``--out`` and is not repeated.
"""

import argparse
import statistics
import sys
from typing import Any

from .layers import ALL_LAYERS
from .store import ResultStore, make_parser, make_store
from .tables import format_table, last_line, spread

METHODS = {"tvm": "TVM's", "ours": "fast_measure"}

Runs = dict[tuple[str, int], dict[str, Any]]
"""Results of ``whole_run.tune`` by method and seed."""


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__, "whole")
    parser.add_argument("--layers", nargs="+", choices=ALL_LAYERS, default=["conv2d", "dense"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--trials", type=int, default=128, help="measured trials of every run")
    parser.add_argument("--num-trials-per-iter", type=int, default=32, help="size of a batch")
    parser.add_argument("--strategy", choices=("evolutionary", "droplet"), default="evolutionary")
    parser.add_argument("--rounds", type=int, default=10, help="of re-measuring the winners")
    return parser.parse_args()


def main() -> int:
    """Run missing runs and print the tables; return 1 if one failed."""
    args = parse_arguments()
    store = make_store(args)
    failures = 0
    reports = []
    ratios = []
    for i, layer in enumerate(args.layers):
        runs: Runs = {}
        for j, seed in enumerate(args.seeds):
            for method in list(METHODS)[:: -1 if (i + j) % 2 else 1]:
                settings = settings_of(args, layer, method=method, seed=seed)
                run = store.get(run_name(args, layer, method, seed), "whole_run", settings)
                failures += run is None
                if run is not None:
                    runs[method, seed] = run
        kernels = measure_winners(args, store, layer, runs)
        failures += kernels is None
        reports.append(layer_report(layer, runs, kernels or [], args.markdown))
        ratios += speedups(runs)
    print("\n" + "\n\n".join(reports))
    if ratios:
        print(f"\nTVM's seconds over ours, over {len(ratios)} pairs of runs: {spread(ratios)}")
    return 1 if failures and not args.report else 0


def run_name(args: argparse.Namespace, layer: str, method: str, seed: int) -> str:
    """The name of a run's file."""
    return f"{layer}-{args.strategy}-{method}-{seed}"


def settings_of(args: argparse.Namespace, layer: str, **more: Any) -> dict[str, Any]:
    """Settings that determine a run."""
    return {
        "layer": layer,
        "trials": args.trials,
        "num_trials_per_iter": args.num_trials_per_iter,
        "strategy": args.strategy,
        **more,
    }


def measure_winners(
    args: argparse.Namespace, store: ResultStore, layer: str, runs: Runs
) -> list[dict[str, Any] | None] | None:
    """The best kernel of each run, timed in turns, in the order of ``runs``."""
    if not runs:
        return None
    names = [run_name(args, layer, method, seed) for method, seed in runs]
    settings = {
        "layer": layer,
        "runs": names,
        "checkpoints": [args.trials],
        "rounds": args.rounds,
    }
    name = f"{layer}-{args.strategy}-winners-{len(names)}"
    timed = store.get(name, "remeasuring", settings)
    return None if timed is None else [kernel for (kernel,) in timed["kernels"]]


def speedups(runs: Runs) -> list[float]:
    """TVM's total seconds over ours, for each seed that has both."""
    return [
        run["total_secs"] / runs["ours", seed]["total_secs"]
        for (method, seed), run in runs.items()
        if method == "tvm" and ("ours", seed) in runs
    ]


def layer_report(
    layer: str, runs: Runs, kernels: list[dict[str, Any] | None], markdown: bool
) -> str:
    """The parts of both methods side by side, means over the seeds, and the best kernels."""
    sides = {m: [run for (own, _), run in runs.items() if own == m] for m in METHODS}
    names = dict.fromkeys(name for run in runs.values() for name in run["parts"])
    # "other" closes the parts that both have.
    rows = [
        [name, *(cell for side in sides.values() for cell in _part_cells(side, name))]
        for name in sorted(names, key="other".__eq__)
    ]
    for label, key in (("total", "total_secs"), ("whole process", "process_secs")):
        row = [label]
        for side in sides.values():
            row += [f"{_mean(run[key] for run in side):.1f}" if side else "-", ""]
        rows.append(row)
    header = ["part"]
    for name in METHODS.values():
        header += [f"{name} s", "%"]
    lines = [f"{'### ' if markdown else ''}{layer}: {ALL_LAYERS[layer].description}", ""]
    lines += dict.fromkeys(run["environment"] for run in runs.values())
    lines += ["", format_table(header, rows, markdown), ""]
    if speedups(runs):
        lines.append(f"TVM's seconds over ours: {spread(speedups(runs))}")
    for (method, seed), run in runs.items():
        errors = [trial["error"] for trial in run["trials"] if "error" in trial]
        line = f"{METHODS[method]}, seed {seed}: {len(run['trials'])} trials, {len(errors)} failed"
        lines.append(line + (f", the first with: {last_line(errors[0])}" if errors else ""))
    for (method, seed), kernel in zip(runs, kernels, strict=False):
        found = f"the best kernel of {METHODS[method]}, seed {seed}, measured again: "
        if kernel is None or kernel["error"] is not None:
            lines.append(found + ("all failed" if kernel is None else last_line(kernel["error"])))
        else:
            low, high = (1e6 * secs for secs in kernel["quartiles"])
            lines.append(f"{found}{kernel['median'] * 1e6:.1f} us (quartiles {low:.1f}-{high:.1f})")
    return "\n".join(lines)


def _part_cells(side: list[dict[str, Any]], name: str) -> list[str]:
    """Mean seconds of a part, and its share of the mean total in %."""
    if not any(name in run["parts"] for run in side):
        return ["-", "-"]
    secs = _mean(run["parts"].get(name, 0.0) for run in side)
    return [f"{secs:.1f}", f"{100 * secs / _mean(run['total_secs'] for run in side):.0f}"]


def _mean(values: Any) -> float:
    return statistics.fmean(values)


if __name__ == "__main__":
    sys.exit(main())
