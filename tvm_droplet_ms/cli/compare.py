# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms compare``."""

import argparse
from pathlib import Path
from typing import Any

from .arguments import add_trust, command, fail, positive


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    compare = command(commands, "compare", _compare, "compare search strategies on measured spaces")
    compare.add_argument(
        "--spaces",
        nargs="+",
        default=["all"],
        help="files or names of the package's spaces; `held-out` for those on which no setting was "
        "chosen, `all` for the others (default: all)",
    )
    compare.add_argument(
        "--strategies",
        nargs="+",
        default=[],
        metavar="NAME",
        help="strategies to run (default: all)",
    )
    compare.add_argument("--trials", type=positive, default=128, help="default: %(default)s")
    compare.add_argument("--seeds", type=positive, default=20, help="default: %(default)s")
    compare.add_argument(
        "--batch",
        type=positive,
        default=64,
        help="maximum number of trials in a batch (default: %(default)s, as in TVM)",
    )
    compare.add_argument("--out", type=Path, required=True, help="directory of the results")
    compare.add_argument(
        "--noisy", action="store_true", help="draw from the recorded times, not their median"
    )
    add_trust(compare)
    compare.add_argument("--workers", type=positive, help="processes (default: one for each CPU)")


def _compare(options: argparse.Namespace) -> int:
    """Run search strategies on measured spaces, without compiling anything, and print the result
    of each. The same command resumes an interrupted comparison."""
    from ..bench.compare.results import CompareError
    from ..bench.compare.runs import Rules, run_compare
    from ..bench.definition import trust
    from ..bench.space import SpaceError, shipped_training_files

    trust(*options.trust)
    try:
        return run_compare(
            [file for given in options.spaces for file in _space_files(given)],
            options.strategies,
            options.out,
            Rules(options.trials, options.seeds, options.batch, options.noisy),
            workers=options.workers,
            samples=shipped_training_files(),
        )
    except (CompareError, SpaceError) as error:
        return fail("compare", error)


def _space_files(given: str) -> list[Path]:
    """The space files that a name selects."""
    from ..bench.space import HELD_OUT, find_space, shipped_spaces

    if given not in ("all", "held-out"):
        return [find_space(given)]
    held_out = given == "held-out"
    return [file for name, file in shipped_spaces().items() if (name in HELD_OUT) == held_out]
