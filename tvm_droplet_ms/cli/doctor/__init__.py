# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms doctor``: likely problems of this machine or of a work directory."""

import argparse
import json
from typing import Any

from ..arguments import command, fail


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    doctor = command(
        commands, "doctor", _run, "say what may go wrong on this machine, or in a work directory"
    )
    doctor.add_argument("work_dir", nargs="?", help="the directory of a run")
    doctor.add_argument(
        "--repair",
        action="store_true",
        help="cut off torn last lines, and move damaged records to a file",
    )
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")


def _run(options: argparse.Namespace) -> int:
    """Examine this machine, and the directory of a run: versions, compiler, threads, noise, disk,
    lock, lines and target, each with what to do. The status is 1 where tuning does not work."""
    if options.repair and options.work_dir is None:
        return fail("doctor", "--repair mends the directory of a run: name it")
    from .machine import examine_machine
    from .work_directory import examine_work_dir

    findings = []
    looks = [examine_machine()]
    if options.work_dir is not None:
        looks.append(examine_work_dir(options.work_dir, repair=options.repair))
    for look in looks:
        for finding in look:
            findings.append(finding)
            if not options.json:
                print(finding, flush=True)
    if options.json:
        print(json.dumps([vars(finding) for finding in findings], indent=1))
    return int(any(finding.state == "fault" for finding in findings))
