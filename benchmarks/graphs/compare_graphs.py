# SPDX-License-Identifier: Apache-2.0
"""Compare the graphs that a search finds with the model as imported and with the fixed preparation.

    python -m benchmarks.graphs --out graphs --models lstm --minutes 10 --seeds 0 1

Every run searches the prepared graph of a model (``graph.optimize``) for some minutes. Then all
kernels of all graphs get the same number of trials, and the graphs are timed in turns. Trials of
the search count. The search gives some kernels 32 trials, so ``--trials`` below 32 makes the
comparison unequal.

The speed in the table is the time of the faster of the imported and the prepared graph, divided by
the time of the found graph. Two more graphs with the same outputs are timed if they exist: a
hand-written graph, and a graph whose matmuls TVM's ``CombineParallelMatmul`` has merged.

A finished run is a file in ``--out`` and is not repeated.
"""

import argparse
from typing import Any

from tvm_droplet_ms.bench.source_digest import TUNING

from ..store import make_parser, make_store
from ..zoo.graph_models import MODELS
from .graphs_report import estimate_table, mean_speed, speed_table

FOLDERS = (*TUNING, "../papers/tvm_droplet_papers/graph", "../benchmarks/zoo")
"""Folders, relative to the package, whose code determines a result."""


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__, "graphs")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of each search")
    parser.add_argument("--trials", type=int, default=32, help="trials of each kernel")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--without-imported",
        action="store_true",
        help="leave out the graphs as imported, whose kernels take the most trials",
    )
    return parser.parse_args()


def main() -> int:
    """Run missing measurements and print the tables. Returns 1 if a measurement failed."""
    args = parse_arguments()
    store = make_store(args, FOLDERS)
    runs: dict[str, list[dict[str, Any]]] = {}
    failures = 0
    # Run all models with one seed before the next seed.
    for seed in args.seeds:
        for model in args.models:
            settings = {
                "model": model,
                "seed": seed,
                "minutes": args.minutes,
                "trials": args.trials,
                "imported": not args.without_imported,
            }
            run = store.get(f"{model}-{seed}", "graphs.graphs_run", settings)
            failures += run is None
            if run is not None:
                runs.setdefault(model, []).append(run)
    print("\n" + speed_table(runs))
    print("\n" + estimate_table(runs))
    mean = mean_speed(runs)
    if mean is not None:
        print(f"\nmean speed over the graphs as imported: {mean:.2f}")
    return 1 if failures and not args.report else 0
