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
"""Compare whole models: ``tune``, TVM's ``static_shape_tuning``, and what the models came from.

    python -m tvm_droplet_ms.bench.live.models --out models --minutes 2 5 --seeds 0 1

Every method has the same minutes of wall clock for everything, the import included, on one thread.
All libraries of a model are then timed in turns with ONNX Runtime or with PyTorch, one run of each
in a round; a program that takes longer than a second takes part in the first few rounds only.

With ``--continued``, the run of 5 minutes is that of 2 minutes gone on in its work directory for 3
more: the import, the first executable and the checks are done anew, so that it gets a little less
than an undivided run.

TVM's pipeline has no clock. Here it is ended by one: after the minutes nothing is proposed, built
or run any more; then the schedules are applied and compiled. The seconds in the table say how long
all of it took.

A finished measurement is a file in ``--out`` and is not repeated.
"""

import argparse
import statistics
import sys
from typing import Any

from .experience_options import add_experience_options, given_experience
from .model_methods import METHODS
from .model_zoo import MODELS
from .models_course import course
from .store import ResultStore, make_parser, make_store
from .tables import format_table

HEADER = (
    "model",
    "program",
    "ms",
    "quartiles",
    "reference / this",
    "deviation",
    "naive kernels",
    "trials",
    "s",
)
"""A naive kernel is one without a schedule: it is compiled as the loops that it is written as."""


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser(__doc__, "models")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=["tune"])
    parser.add_argument("--minutes", nargs="+", type=float, default=[2.0, 5.0, 15.0])
    parser.add_argument(
        "--continued", action="store_true", help="let each run of tune go on with the one before"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rounds", type=int, default=21)
    add_experience_options(parser)
    return parser.parse_args()


def main() -> int:
    """Run missing measurements and print the tables; return 1 if one failed."""
    args = parse_arguments()
    store = make_store(args)
    experience = given_experience(args)
    failures = 0
    rows: list[tuple[str, ...]] = []
    for model in args.models:
        runs: dict[str, dict[str, Any]] = {}
        for seed in args.seeds:
            for method in args.methods:
                runs_of_method = course(
                    store, model, method, seed, args.minutes, args.continued, experience
                )
                for name, run in runs_of_method:
                    failures += run is None
                    if run is not None:
                        runs[name] = run
        timed = _time(store, model, runs, args.rounds)
        failures += timed is None and bool(runs)
        if timed is not None:
            rows += model_rows(model, runs, timed)
    print("\n" + format_table(HEADER, rows, args.markdown))
    return 1 if failures and not args.report else 0


def _time(
    store: ResultStore, model: str, runs: dict[str, dict[str, Any]], rounds: int
) -> dict[str, Any] | None:
    if not runs:
        return None
    libraries = {name: run["library"] for name, run in runs.items()}
    settings = {"model": model, "libraries": libraries, "rounds": rounds}
    return store.get(f"{model}-timed-{len(runs)}", "models_timing", settings)


def model_rows(
    model: str, runs: dict[str, dict[str, Any]], timed: dict[str, Any]
) -> list[tuple[str, ...]]:
    """A line for each program of a model.

    Parameters
    ----------
    model : str
        The model's name.
    runs : dict[str, dict[str, Any]]
        Results of ``models_run`` by the program's name.
    timed : dict[str, Any]
        The result of ``models_timing``. The first program is the reference.

    Returns
    -------
    rows : list[tuple[str, ...]]
        Cells: model, program, median in milliseconds, quartiles, the median ratio of the
        reference's time to this one's in the same round, deviation, kernels without a schedule,
        trials, seconds of the run.
    """
    reference = next(iter(timed["secs"].values()))
    rows: list[tuple[str, ...]] = []
    for name, secs in timed["secs"].items():
        low, middle, high = (1e3 * q for q in statistics.quantiles(secs, n=4, method="inclusive"))
        # The same position is the same round. A slow program is in the first ones only.
        ratio = statistics.median(a / b for a, b in zip(reference, secs, strict=False))
        run = runs.get(name)
        rows.append(
            (
                model,
                name,
                f"{middle:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{ratio:.2f}",
                f"{timed['deviations'][name]:.1e}" if name in timed["deviations"] else "-",
                naive_kernels(run) if run else "-",
                str(run["trials"]) if run else "-",
                f"{run['secs']:.0f}" if run else "-",
            )
        )
    return rows


def naive_kernels(run: dict[str, Any]) -> str:
    """How many kernels of a model have no schedule, and of how many."""
    naive = sum(kernel["schedule"] == "untouched" for kernel in run["kernels"])
    return f"{naive} of {len(run['kernels'])}"


if __name__ == "__main__":
    sys.exit(main())
