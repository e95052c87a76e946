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
"""Compare variants of a search live and cheaply: a module that was measured once costs nothing.

    python -m tvm_droplet_ms.bench.live.cached --label before --methods evolutionary droplet
    python -m tvm_droplet_ms.bench.live.cached --label after --methods droplet     # other code
    python -m tvm_droplet_ms.bench.live.cached --top-up --baseline before/droplet

The builder and the runner keep each timing in ``--cache``, by the hash of the candidate's module. A
module that is known is neither built nor run: the runner answers with a stored pass, which the seed
and the module determine. So all variants of one seed see the same noise for the same module. The
random schedules that begin a run are common to all variants that draw them in the same way.

A variant is a label and a method. The label names the code: several checkouts of the package may
share ``--cache`` and ``--out``. ``--top-up`` times the leaders of all variants again, in processes
of their own, until each has nine passes of three processes. The truth of a module is then the
median over all its passes, and the report compares the truth of winners.

Each run is a process of its own and a file in ``--out``; after a stop, the same command goes on.
``--report`` prints the available results.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .cached_comparison import gains_of, read_comparison
from .cached_report import Shown, cached_report
from .cached_results import CachedRun, read_runs
from .compare import CHECKPOINTS, order_of_runs, run_name, run_settings
from .experience_options import add_experience_options
from .layers import ALL_LAYERS, LAYERS
from .methods import METHODS, MethodError, check_methods
from .store import ResultError, make_parser, make_store
from .timing_cache import TimingCache
from .timing_file import CacheError
from .top_up import top_up_all


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse and check the command line."""
    parser = make_parser(__doc__, "cached")
    parser.add_argument(
        "--cache", type=Path, default=Path("timings.sqlite"), help="file of the timings"
    )
    parser.add_argument("--label", help="name of the code; without it nothing is tuned")
    parser.add_argument("--layers", nargs="+", choices=ALL_LAYERS, default=list(LAYERS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["droplet"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3])
    parser.add_argument("--trials", type=int, default=64, help="trials of every run")
    parser.add_argument("--batch", type=int, default=32, help="the most trials of a batch")
    parser.add_argument("--top-up", action="store_true", help="time the leaders again")
    parser.add_argument(
        "--baseline", help='"label/method"; by default the first variant of method evolutionary'
    )
    parser.add_argument("--gains", type=Path, help="write the mean gains as JSON to this file too")
    add_experience_options(parser)
    args = parser.parse_args(arguments)
    for option in ("trials", "batch"):
        if getattr(args, option) < 1:
            parser.error(f"--{option} is {getattr(args, option)}, expected at least 1")
    if args.label is not None and not re.fullmatch(r"[\w.+-]*\w[\w.+-]*", args.label):
        parser.error(f"--label is {args.label!r}, expected letters, digits and . _ + - only")
    if args.label == "top_up":
        parser.error("--label is top_up, the name of another directory: choose another one")
    if not (args.label or args.top_up or args.report):
        parser.error("expected --label to tune, --top-up to time leaders again, or --report")
    return args


def checkpoints_of(args: argparse.Namespace) -> list[int]:
    """8, 16, 32 and so on, as far as the trials go, and the last trial."""
    return [*(number for number in CHECKPOINTS if number < args.trials), args.trials]


def make_runs(args: argparse.Namespace) -> int:
    """Make the runs of the label that are missing; returns how many failed.

    Raises
    ------
    CacheError
        If the cache is of another machine.
    ResultError
        If there is a run of other settings or of other code.
    """
    from .environment import this_machine

    # A cache of another machine is refused before any process is started.
    TimingCache(args.cache, this_machine()).close()
    store = make_store(args)
    store = replace(store, directory=store.directory / args.label)
    failed = 0
    for layer, method, seed in order_of_runs(args):
        settings = run_settings(args, layer, method, seed)
        settings |= {"label": args.label, "cache": str(args.cache.resolve())}
        try:
            failed += store.get(run_name(layer, method, seed), "cached_run", settings) is None
        except ResultError as error:
            raise ResultError(f"{error}; another --label serves as well") from error
    return failed


def wanted_runs(args: argparse.Namespace) -> list[CachedRun]:
    """The runs of all labels with the chosen layers, seeds and trials."""
    wanted = {"layer": args.layers, "seed": args.seeds, "trials": args.trials, "batch": args.batch}
    return read_runs(args.out, wanted)


def choose_baseline(asked: str | None, variants: Sequence[str]) -> str:
    """The variant to compare with.

    Raises
    ------
    ResultError
        If there is no such variant.
    """
    if asked is not None and asked not in variants:
        raise ResultError(f"--baseline is {asked}, expected one of {', '.join(variants)}")
    evolutionary = [variant for variant in variants if variant.endswith("/evolutionary")]
    return asked or (evolutionary or variants)[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run missing runs, time leaders and print the tables; return 1 if a run failed."""
    args = parse_arguments(arguments)
    failed = 0
    try:
        if args.label and not args.report:
            check_methods(args.methods)
            failed = make_runs(args)
        runs = wanted_runs(args)
        if not runs:
            raise ResultError(f"{args.out} has no run of these layers, seeds, trials and batch")
        checkpoints = checkpoints_of(args)
        if args.top_up and not args.report:
            top_up_all(args.cache, args.out, runs, checkpoints)
        with TimingCache(args.cache) as cache:
            comparison = read_comparison(runs, cache)
        baseline = choose_baseline(args.baseline, comparison.variants)
        print("\n" + cached_report(comparison, Shown(baseline, checkpoints, args.markdown)))
        if args.gains:
            gains = {number: gains_of(comparison, baseline, number) for number in checkpoints}
            args.gains.write_text(json.dumps(gains, indent=1) + "\n")
    except (CacheError, MethodError, ResultError) as error:
        print(f"cached: error: {error}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
