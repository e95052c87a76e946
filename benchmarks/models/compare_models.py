# SPDX-License-Identifier: Apache-2.0
"""Compare whole models: ``tune``, TVM's ``static_shape_tuning``, and what people run models with.

    python -m benchmarks.models --out models --minutes 2 5 --seeds 0 1

Every method has the same minutes of wall-clock time in total, including the import. All libraries
of a model are then timed in turns with the programs of ``baselines``, one run of each per round.
The speed is relative to the fastest of these programs. ``--methods`` without a name times only the
programs.

With ``--continued``, the 5-minute run continues the 2-minute run in its work directory for 3 more
minutes. The import, the first executable and the checks are repeated, so it gets slightly less
tuning time than a single run.

TVM's pipeline has no time limit. This benchmark adds one: after the minutes, no further batch
starts. Then the schedules are applied and compiled. The seconds in the table are the total time.

A finished measurement is a file in ``--out`` and is not repeated.
"""

import argparse
import json
from collections.abc import Iterator
from statistics import median, quantiles
from typing import Any

from tvm_droplet_ms.display.tables import align

from ..store import ResultStore, given_files, make_parser, make_store
from ..zoo.model_zoo import MODELS, TRAINING_MODELS
from ..zoo.quantized_models import QUANTIZED_MODELS

IN_BFLOAT16 = "tune in bfloat16"

METHODS = ("tune", "tune to the end", "tune with winograd", IN_BFLOAT16, "static_shape_tuning")
"""``tune to the end`` never stops early (``stop=None``). ``static_shape_tuning`` is TVM's pipeline
in its fastest configuration; see ``models_tvm``."""

HEADER = (
    "model",
    "program",
    "ms",
    "quartiles",
    "fastest / this",
    "deviation",
    "naive kernels",
    "trials",
    "s",
)
"""The columns of the table. A naive kernel has no schedule: its loops are compiled as written."""

WRONG = 0.5
"""The deviation from which outputs count as wrong. For example, MNN 3.6.1 outputs no valid numbers
for a quantized model."""

Result = dict[str, Any]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__, "models", files=("prior", "known"))
    parser.add_argument(
        "--models",
        nargs="+",
        choices=(*MODELS, *QUANTIZED_MODELS, *TRAINING_MODELS),
        default=list(MODELS),
    )
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=["tune"])
    parser.add_argument("--minutes", nargs="+", type=float, default=[2.0, 5.0, 15.0])
    parser.add_argument(
        "--continued", action="store_true", help="let each run of tune go on with the one before"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument(
        "--target", type=json.loads, help="the target of tune, as JSON (default: this machine's)"
    )
    return parser.parse_args()


def main() -> int:
    """Run missing measurements and print the tables. Returns 1 if a measurement failed."""
    args = parse_arguments()
    store = make_store(args)
    failures = 0
    rows: list[tuple[str, ...]] = [HEADER]
    options = given_files(args) | ({"target": args.target} if args.target else {})
    for model in args.models:
        runs: dict[str, Result] = {}
        for seed in args.seeds:
            for method in args.methods:
                given = {
                    "model": model,
                    "method": method,
                    "seed": seed,
                    "threads": args.threads,
                    "files": options,
                }
                is_continued = args.continued and method != "static_shape_tuning"
                for name, run in course(store, given, args.minutes, is_continued):
                    failures += run is None
                    if run is not None:
                        runs[name] = run
        if args.methods and not runs:
            continue
        libraries = {name: run["library"] for name, run in runs.items()}
        settings = {
            "model": model,
            "libraries": libraries,
            "threads": args.threads,
            "rounds": args.rounds,
        }
        name = f"{model}-timed-{len(runs)}-{args.threads}"
        timed = store.get(name, "models.models_timing", settings)
        failures += timed is None
        if timed is not None:
            failures += sum(name in runs for name in timed["refused"])
            rows += model_rows(model, runs, timed)
    print("\n" + align(rows))
    return 1 if failures and not args.report else 0


def course(
    store: ResultStore, given: Result, minutes: list[float], is_continued: bool
) -> Iterator[tuple[str, Result | None]]:
    """Read or make the runs of one method on one model, one for each number of minutes.

    - ``store``: the store of the results.
    - ``given``: the settings that the runs share.
    - ``minutes``: the wall-clock minutes of each run.
    - ``is_continued``: whether a run continues the previous run in its work directory, for the
      difference of their minutes.

    Yields the run's name in tables, and its result. The result is None if the run or a run that it
    continues has no result.
    """
    before: Result | None = None
    for index, most in enumerate(sorted(set(minutes)) if is_continued else minutes):
        settings: Result = {**given, "minutes": most}
        name = f"{given['method']}, {most:g} min, seed {given['seed']}"
        if is_continued and index > 0:
            if before is None:
                yield name, None
                continue
            # Include seconds and trials, so that repeating a run invalidates the runs that continue
            # it.
            settings["before"] = {
                "name": run_name(before["settings"]),
                "minutes": before["settings"]["minutes"],
                "secs": before["secs"],
                "trials": before["trials"],
            }
        before = store.get(run_name(settings), "models.models_run", settings)
        yield name, before


def run_name(settings: Result) -> str:
    """The name of a run's files."""
    minutes = f"{settings['minutes']:g}" + "-continued" * ("before" in settings)
    parts = (settings["model"], settings["method"], minutes, settings["seed"], settings["threads"])
    return "-".join(map(str, parts)).replace(" ", "_")


def model_rows(model: str, runs: dict[str, Result], timed: Result) -> list[tuple[str, ...]]:
    """The table rows of a model, one per program.

    Each row has the cells: model, program, median in milliseconds, quartiles, the median ratio of
    the fastest baseline's time to this program's in the same round, deviation, kernels without a
    schedule, trials, seconds of the run. For a program that cannot run the model, the reason
    replaces the quartiles. A baseline that deviates by ``WRONG`` or more counts as the fastest only
    if all baselines do.
    """
    secs_of, deviations = timed["secs"], timed["deviations"]
    baselines = [name for name in secs_of if name not in runs]
    right = [name for name in baselines if deviations[name] < WRONG]
    fastest = min(right or baselines, key=lambda name: median(secs_of[name]))
    rows: list[tuple[str, ...]] = []
    for name, secs in secs_of.items():
        low, middle, high = (1e3 * q for q in quantiles(secs, n=4, method="inclusive"))
        ratio = median(a / b for a, b in zip(secs_of[fastest], secs, strict=True))
        run = runs.get(name)
        rows.append(
            (
                model,
                name,
                f"{middle:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{ratio:.2f}",
                f"{deviations[name]:.1e}",
                _naive_kernels(run) if run else "-",
                str(run["trials"]) if run else "-",
                f"{run['secs']:.0f}" if run else "-",
            )
        )
    rows += [(model, name, "-", why, *["-"] * 5) for name, why in timed["refused"].items()]
    return rows


def _naive_kernels(run: Result) -> str:
    """The number of kernels without a schedule, and of all kernels of a model."""
    naive = sum(kernel["schedule"] == "untouched" for kernel in run["kernels"])
    return f"{naive} of {len(run['kernels'])}"
