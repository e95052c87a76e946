# SPDX-License-Identifier: Apache-2.0
"""Compare search methods live: the same layers, trials, builder, runner, batches and seeds for all.

    python -m benchmarks.searches --out live
    python -m benchmarks.searches --records docs/data/live_five_seeds.csv

Each run is a separate process. The seeds run one after the other. Within a seed, the methods of a
layer run in turn, and the first method rotates. A finished run is a file in ``--out`` and is not
repeated: after a stop, the same command continues. At the end, the winners of all runs at every
checkpoint are rebuilt, checked against the unscheduled layer, and timed together in alternation.
``--report`` prints the available results, and ``--records`` prints the results in a file that
``--csv`` wrote.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..store import ResultError, ResultStore, given_files, make_parser, make_store
from .compare_report import Report
from .comparison import LayerResults, Run, read_records, write_records
from .layers import ALL_LAYERS, LAYERS
from .methods import METHODS

CHECKPOINTS = (8, 16, 32, 64, 128)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse and check the command line."""
    parser = make_parser(__doc__, "live", files=("prior", "draft", "known"))
    parser.add_argument("--layers", nargs="+", choices=ALL_LAYERS, default=list(LAYERS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--baseline", choices=METHODS, default="evolutionary")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--trials", type=int, default=128, help="measured trials of every run")
    parser.add_argument("--batch", type=int, default=32, help="the most trials of a batch")
    parser.add_argument(
        "--checkpoints", nargs="+", type=int, help="8 16 32 64 128, as far as --trials goes"
    )
    parser.add_argument(
        "--mcpu", help="LLVM's name of a CPU whose code this one runs, such as haswell (AVX2)"
    )
    parser.add_argument("--rounds", type=int, default=10, help="timings of each winner")
    parser.add_argument("--csv", type=Path, help="write the latencies and seconds to this file too")
    parser.add_argument("--records", type=Path, help="print the tables of such a file, and end")
    args = parser.parse_args(arguments)
    for option in ("trials", "batch", "rounds"):
        if getattr(args, option) < 1:
            parser.error(f"--{option} is {getattr(args, option)}, expected at least 1")
    checkpoints = args.checkpoints or [c for c in CHECKPOINTS if c < args.trials]
    if any(not 0 < checkpoint <= args.trials for checkpoint in checkpoints):
        parser.error(f"--checkpoints is {checkpoints}, expected 1 to --trials ({args.trials}) each")
    args.checkpoints = sorted({*checkpoints, args.trials})
    return args


def run_name(layer: str, method: str, seed: int) -> str:
    """The name of a run's file."""
    return f"{layer}-{method.replace(' ', '_')}-{seed}"


def run_settings(args: argparse.Namespace, layer: str, method: str, seed: int) -> dict[str, object]:
    """The settings that determine a run."""
    made, takes = ALL_LAYERS[layer], METHODS[method].takes
    files = {name: path for name, path in given_files(args).items() if name in takes}
    return {
        "layer": layer,
        "workload": [made.function, *made.arguments],
        "method": method,
        "seed": seed,
        "trials": args.trials,
        "batch": args.batch,
        "files": files,
        **_code(args),
    }


def _code(args: argparse.Namespace) -> dict[str, str]:
    """The setting of the CPU to generate code for; empty for this machine's CPU."""
    return {"mcpu": args.mcpu} if args.mcpu else {}


def order_of_runs(args: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Yield layer, method and seed of each run: seed by seed, with a rotating first method."""
    for number, seed in enumerate(args.seeds):
        for position, layer in enumerate(args.layers):
            first = (number + position) % len(args.methods)
            for method in args.methods[first:] + args.methods[:first]:
                yield layer, method, seed


def run_all(args: argparse.Namespace, store: ResultStore) -> dict[str, LayerResults]:
    """Make missing runs and read all results; without ``--report``, also time the winners."""
    results = {layer: LayerResults() for layer in args.layers}
    finished: dict[str, dict[str, float]] = {layer: {} for layer in args.layers}
    for layer, method, seed in order_of_runs(args):
        name = run_name(layer, method, seed)
        run = store.get(name, "searches.tuning", run_settings(args, layer, method, seed))
        if run is not None:
            results[layer].runs[method, seed] = Run.from_json(run)
            finished[layer][name] = run["finished"]
    for layer in args.layers:
        if finished[layer]:
            remeasure(args, store, layer, results[layer], finished[layer])
    return results


def remeasure(
    args: argparse.Namespace,
    store: ResultStore,
    layer: str,
    results: LayerResults,
    finished: dict[str, float],
) -> None:
    """Time the winners of a layer's runs, and add their latencies to the results."""
    settings = {
        "layer": layer,
        "runs": list(finished),
        "finished": list(finished.values()),
        "checkpoints": args.checkpoints,
        "rounds": args.rounds,
        **_code(args),
    }
    # New or repeated runs change the set of winners, so that all winners are timed again together.
    digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]
    timed = store.get(f"winners-{layer}-{digest}", "searches.remeasuring", settings)
    if timed is None:
        return
    for (method, seed), kernels in zip(results.runs, timed["kernels"], strict=True):
        for checkpoint, kernel in zip(args.checkpoints, kernels, strict=True):
            if kernel is None:
                continue
            if kernel["error"] is None:
                results.latencies[method, seed, checkpoint] = kernel["median"]
            else:
                name = run_name(layer, method, seed)
                print(f"the winner of {name} at {checkpoint}: {kernel['error']}", file=sys.stderr)


def print_records(path: Path, baseline: str) -> None:
    """Print the tables of a file that ``write_records`` wrote."""
    layers, checkpoints = read_records(path)
    keys = [key for results in layers.values() for key in results.runs]
    methods = list(dict.fromkeys(method for method, _ in keys))
    report = Report(layers, baseline, methods, sorted({seed for _, seed in keys}), checkpoints)
    print(f"{report.ratios()}\n\n{report.seconds()}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make missing runs and print the tables. Returns 1 if a run failed."""
    args = parse_arguments(arguments)
    if args.records:
        print_records(args.records, args.baseline)
        return 0
    try:
        results = run_all(args, make_store(args))
    except ResultError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    known = {layer: found for layer, found in results.items() if found.runs}
    for line in sorted(
        {run.environment for found in known.values() for run in found.runs.values()}
    ):
        print(line)
    print(
        f"{args.trials} trials a run in batches of at most {args.batch}, fast_measure, seeds "
        f"{', '.join(map(str, args.seeds))}; baseline: {args.baseline}; a winner's time is the "
        f"median of {args.rounds} rounds.\n"
    )
    print(Report(known, args.baseline, args.methods, args.seeds, args.checkpoints).text())
    if args.csv:
        write_records(args.csv, results, args.checkpoints)
    expected = len(args.layers) * len(args.methods) * len(args.seeds)
    missing = expected - sum(len(found.runs) for found in results.values())
    if missing:
        print(f"\n{missing} of {expected} runs are missing", file=sys.stderr)
    return 1 if missing and not args.report else 0
