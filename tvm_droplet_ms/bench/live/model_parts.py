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
"""What each part of ``tune`` is worth: whole models, tuned with one part left out.

    python -m tvm_droplet_ms.bench.live.model_parts --out parts --models resnet50 --minutes 2

All variants have the same minutes of wall clock, on one thread. The libraries of a model are then
timed in turns, one run of each in a round. The ratio of a variant is its time over that of ``full``
with the same seed in the same round: above 1, the part makes the model faster.

A finished measurement is a file in ``--out`` and is not repeated.
"""

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from .experience_options import add_experience_options, given_experience
from .model_variants import FULL, VARIANTS
from .model_zoo import MODELS
from .store import ResultStore, make_parser, make_store
from .tables import format_table

Key = tuple[str, int]
"""A variant and a seed."""

HEADER = ("model", "variant", "time / full", "quartiles", "by seed", "ms", "trials", "what it is")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__, "parts")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["resnet50", "densenet121"])
    others = [name for name in VARIANTS if name != FULL]
    parser.add_argument("--variants", nargs="+", choices=others, default=others)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rounds", type=int, default=21)
    add_experience_options(parser)
    return parser.parse_args()


def main() -> int:
    """Run missing measurements and print a Markdown table; return 1 if one failed."""
    args = parse_arguments()
    store = make_store(args)
    experience = given_experience(args)
    failures = 0
    rows: list[tuple[str, ...]] = []
    for model in args.models:
        runs: dict[Key, dict[str, Any]] = {}
        for seed in args.seeds:
            for variant in (FULL, *args.variants):
                settings: dict[str, Any] = {
                    "model": model,
                    "variant": variant,
                    "minutes": args.minutes,
                    "seed": seed,
                }
                name = run_name(settings)
                if experience:
                    settings["experience"] = experience
                run = store.get(name, "model_parts_run", settings)
                failures += run is None
                if run is not None:
                    runs[variant, seed] = run
        timed = _time(store, model, runs, args.rounds)
        failures += timed is None and bool(runs)
        if timed is not None:
            rows += part_rows(model, runs, timed["secs"])
    print("\n" + format_table(HEADER, rows, True))
    return 1 if failures and not args.report else 0


def _time(
    store: ResultStore, model: str, runs: Mapping[Key, dict[str, Any]], rounds: int
) -> dict[str, Any] | None:
    if not runs:
        return None
    libraries = {program_name(*key): run["library"] for key, run in runs.items()}
    settings = {"model": model, "libraries": libraries, "rounds": rounds}
    return store.get(f"{model}-parts-timed-{len(runs)}", "models_timing", settings)


def run_name(settings: Mapping[str, Any]) -> str:
    """The name of a run's files."""
    parts = (settings[key] for key in ("model", "variant", "minutes", "seed"))
    return "-".join(map(str, parts)).replace(" ", "_")


def program_name(variant: str, seed: int) -> str:
    """The name of a timed program."""
    return f"{variant}, seed {seed}"


def part_rows(
    model: str, runs: Mapping[Key, dict[str, Any]], secs: Mapping[str, Sequence[float]]
) -> list[tuple[str, ...]]:
    """A line for each variant of a model.

    Parameters
    ----------
    model : str
        The model's name.
    runs : Mapping[tuple[str, int], dict[str, Any]]
        Results of ``model_parts_run``.
    secs : Mapping[str, Sequence[float]]
        The seconds of each round by the program's name; the same position is the same round.

    Returns
    -------
    rows : list[tuple[str, ...]]
        Cells: model, variant, the median over rounds and seeds of the ratio of its time to that of
        ``full``, its quartiles, the median of each seed, milliseconds, trials, a description. A
        seed whose ``full`` failed is left out.
    """
    rows: list[tuple[str, ...]] = []
    for variant in dict.fromkeys(variant for variant, _ in runs):
        seeds = [seed for own, seed in runs if own == variant and (FULL, seed) in runs]
        ratios = [
            [
                ours / full
                # A slow program is in the first rounds only.
                for ours, full in zip(
                    secs[program_name(variant, seed)],
                    secs[program_name(FULL, seed)],
                    strict=False,
                )
            ]
            for seed in seeds
        ]
        if not ratios:
            continue
        low, middle, high = quantiles(itertools.chain(*ratios), n=4, method="inclusive")
        times = [1e3 * median(secs[program_name(variant, seed)]) for seed in seeds]
        rows.append(
            (
                model,
                variant,
                f"{middle:.2f}",
                f"{low:.2f} to {high:.2f}",
                ", ".join(f"{median(of_seed):.2f}" for of_seed in ratios),
                ", ".join(f"{time:.2f}" for time in times),
                ", ".join(str(runs[variant, seed]["trials"]) for seed in seeds),
                VARIANTS[variant],
            )
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
