# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms merge``."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from .arguments import command, concerns, fail


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    merge = command(commands, "merge", _run, "join the databases of several work directories")
    merge.add_argument("work_dirs", nargs="+", metavar="WORK_DIR", help="directories of runs")
    merge.add_argument("--out", required=True, metavar="WORK_DIR", help="the new directory")
    merge.add_argument("--json", action="store_true", help="print the numbers as JSON")


def _run(options: argparse.Namespace) -> int:
    """Join the databases of several work directories of one target into a new one. Of a schedule
    that was measured in several, the fastest record is kept."""
    from ..session.merging import MergeError, merge_work_dirs

    try:
        merged = merge_work_dirs(options.work_dirs, options.out)
    except MergeError as error:
        return fail("merge", error)
    except OSError as error:
        if not concerns(error, options.out):
            return fail("merge", error)
        return fail("merge", f"{error}: make room or permit writing there, or pass another --out")
    if options.json:
        print(json.dumps({"work_dir": options.out, **asdict(merged)}))
        return 0
    print(f"{options.out}: {merged.records} records, {merged.repeated} repeated ones left out")
    return 0
