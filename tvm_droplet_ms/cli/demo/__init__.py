# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms demo``."""

import argparse
import sys
from typing import Any

from ..arguments import fail, seed, whole

_trials = whole(
    2,
    "is not a number of trials: expected an integer of at least 2, one to explore and one to "
    "descend",
)


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    demo = commands.add_parser(
        "demo",
        help="tune a matmul and a 3x3 convolution for this machine's CPU",
        description="Tune a matmul and a 3x3 convolution for this machine's CPU with the "
        "defaults of this package. Check the outputs of the tuned kernels against the untuned "
        "ones. Print the speed before tuning, after exploration and after the descent.",
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
        help="directory of the database and TVM's logs; a run in the same directory continues "
        "from its database (default: a new temporary directory, which is kept)",
    )
    demo.add_argument(
        "--verbose", action="store_true", help="show TVM's own log on the console too"
    )
    demo.add_argument("--profile", action="store_true", help="print where the tuning time went")
    demo.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if not sys.platform.startswith("linux"):
        reason = f"it needs Linux, because its builder and runner do; this is {sys.platform}"
        return fail("demo", reason)
    from .kernels import DemoError
    from .run import run_demo

    try:
        run_demo(
            trials=options.trials,
            seed=options.seed,
            work_dir=options.work_dir,
            verbose=options.verbose,
            profile=options.profile,
        )
    except DemoError as error:
        return fail("demo", error)
    return 0
