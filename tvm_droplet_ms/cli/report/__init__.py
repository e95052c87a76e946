# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms report``: a page about a run's measurements."""

import argparse
import json
import os
import sys
from typing import Any

from ..arguments import command, concerns, fail


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    report = command(commands, "report", _run, "write a page about a run")
    report.add_argument("work_dir", metavar="WORK_DIR", help="the directory of a run")
    report.add_argument("--out", help="the page (default: report.html in WORK_DIR)")
    report.add_argument(
        "--follow",
        action="store_true",
        help="write the page again while the run goes on, until Ctrl-C; the browser reloads it",
    )
    report.add_argument("--json", action="store_true", help="print the paths as JSON")


def _run(options: argparse.Namespace) -> int:
    """Write one self-contained HTML page about a work directory, and its numbers as JSON beside
    it: convergence, failures, and what each decision was worth."""
    from .following import follow
    from .history import ReportError
    from .page import write_report

    out = options.out or os.path.join(options.work_dir, "report.html")
    try:
        if options.follow:
            print(f"{out}: Ctrl-C ends", file=sys.stderr, flush=True)
            follow(options.work_dir, lambda secs: write_report(options.work_dir, out, secs))
        numbers = write_report(options.work_dir, out)
    except ReportError as error:
        return fail("report", error)
    except OSError as error:
        if not concerns(error, out):
            return fail("report", error)
        return fail("report", f"{error}: permit writing there, or pass another --out")
    if options.json:
        print(json.dumps({"page": out, "numbers": str(numbers)}))
        return 0
    print(f"{out}, {numbers}")
    return 0
