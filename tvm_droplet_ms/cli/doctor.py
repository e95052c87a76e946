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
"""The command ``droplet-ms doctor``."""

import argparse
import json
from typing import Any


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    doctor = commands.add_parser(
        "doctor",
        help="say what may go wrong on this machine, or in a work directory",
        description="Examine this machine, and the directory of a run: versions, compiler, "
        "threads, noise, disk, lock, lines and target, each with what to do. The status is 1 where "
        "tuning does not work.",
    )
    doctor.add_argument("work_dir", nargs="?", help="the directory of a run")
    doctor.add_argument(
        "--repair",
        action="store_true",
        help="cut off torn last lines, and move damaged records to a file",
    )
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from ..doctor import examine_machine, examine_work_dir

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
