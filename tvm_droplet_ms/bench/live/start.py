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
"""Seconds from the start of a process to its first candidate: TVM's own beside fast_measure.

    python -m tvm_droplet_ms.bench.live.start --out start      # about 10 minutes on 2 cores

Each measurement is a process that does what a user's program does: import, describe a kernel, make
builder and runner, call ``ms.tune_tir``. Its clock starts before its Python does. One method uses
``LocalBuilder()`` and ``LocalRunner()``, the other ``**fast_measure(target)``. A builder around
theirs takes the time when the first batch reaches it, has one candidate of the batch built, and
ends the process. The two methods take turns, and in going first. The kernels are those of
``droplet-ms demo``, one in each process.

A finished measurement is a file in ``--out`` and is not repeated.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from .store import ResultStore, make_parser, make_store
from .tables import format_table, last_line, spread

KERNELS: dict[str, list[str | int]] = {
    "matmul": ["matmul", 512, 512, 512],
    "conv2d_3x3": ["conv2d_nhwc", 1, 56, 56, 64, 64, 3, 1, 1],
}
"""The kernels of the demo: the function of ``tvm.s_tir.meta_schedule.testing.te_workload`` and its
arguments."""

METHODS = ("tvm", "ours")

Results = dict[int, dict[str, Any]]
"""Results of ``first_batch`` by repeat."""

SENT, APART, BUILT = "first candidate sent", "the same without proposing", "first build returned"


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__, "start")
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument(
        "--strategies",
        nargs="+",
        choices=("evolutionary", "droplet"),
        default=["evolutionary"],
        help="TVM's evolutionary search or DropletStrategy, in both columns",
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    """Run missing measurements and print the tables; return 1 if one failed."""
    args = parse_arguments()
    store = make_store(args)
    failures = 0
    reports = []
    for strategy in args.strategies:
        for kernel in args.kernels:
            results: dict[str, Results] = {method: {} for method in METHODS}
            for repeat in range(args.repeats):
                for method in METHODS[:: -1 if repeat % 2 else 1]:
                    result = measure(args, store, strategy, kernel, method, repeat)
                    failures += result is None
                    if result:
                        results[method][repeat] = result
            reports.append(start_report(f"{kernel}, {strategy}", results, args.markdown))
    print()
    print("\n\n".join(reports))
    return 1 if failures and not args.report else 0


def measure(
    args: argparse.Namespace,
    store: ResultStore,
    strategy: str,
    kernel: str,
    method: str,
    repeat: int,
) -> dict[str, Any] | None:
    """The result of one process."""
    settings = {
        "kernel": kernel,
        "layer": KERNELS[kernel],
        "strategy": strategy,
        "method": method,
        "repeat": repeat,
        "seed": args.seed,
    }
    name = f"{kernel}-{strategy}-{method}-{repeat}"
    return store.get(name, "first_batch", settings, as_script=True)


def parts_of(result: dict[str, Any]) -> dict[str, float]:
    """The seconds of each part, in order, and of the sums."""
    parts = {}
    before = result["started"]
    for name, ended in result["stamps"].items():
        parts[name] = ended - before
        before = ended
    proposing = result["proposing"]
    parts["design space"] = result["sent"] - before - proposing
    parts["proposing the first batch"] = proposing
    total = result["sent"] - result["started"]
    return {
        **parts,
        SENT: total,
        APART: total - proposing,
        BUILT: result["built"] - result["started"],
    }


def start_report(title: str, results: dict[str, Results], markdown: bool) -> str:
    """Medians of the parts and their ranges; for the sums, the ratios too."""
    sides = {
        method: {repeat: parts_of(result) for repeat, result in results[method].items()}
        for method in METHODS
    }
    if not all(sides.values()):
        return f"{title}: nothing measured with {[m for m in METHODS if not sides[m]]}"
    rows = []
    for name in next(iter(sides["ours"].values())):
        row = [name, *(_cell([parts[name] for parts in side.values()]) for side in sides.values())]
        if name in (SENT, APART, BUILT):
            both = sides["tvm"].keys() & sides["ours"].keys()
            row.append(spread([sides["tvm"][i][name] / sides["ours"][i][name] for i in both]))
        rows.append(row)
    table = format_table(["seconds", "TVM's", "fast_measure", "ratio"], rows, markdown)
    lines = [f"{'### ' if markdown else ''}{title}", "", table]
    for method, side in results.items():
        errors = [result["error"] for result in side.values() if result["error"]]
        if errors:
            lines.append(f"{method}: {len(errors)} first builds failed: {last_line(errors[0])}")
    return "\n".join(lines)


def _cell(secs: Sequence[float]) -> str:
    return f"{statistics.median(secs):.2f} [{min(secs):.2f}-{max(secs):.2f}]"


if __name__ == "__main__":
    sys.exit(main())
