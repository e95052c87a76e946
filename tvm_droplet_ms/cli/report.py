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
"""The command ``droplet-ms report``."""

import argparse
import json
import sys
from typing import Any


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    report = commands.add_parser(
        "report",
        help="write a page about a run",
        description="Write one self-contained HTML page about a work directory, and its numbers as "
        "JSON beside it: convergence, failures, and what each decision was worth.",
    )
    report.add_argument("work_dir", metavar="WORK_DIR", help="the directory of a run")
    report.add_argument("--out", default="report.html", help="the page (default: %(default)s)")
    report.add_argument("--json", action="store_true", help="print the paths as JSON")
    report.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from ..run_report.page import write_report
    from ..run_report.run_history import ReportError

    try:
        numbers = write_report(options.work_dir, options.out)
    except (ReportError, OSError) as error:
        print(f"droplet-ms report: error: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"page": options.out, "numbers": str(numbers)}))
        return 0
    print(f"{options.out}, {numbers}")
    return 0
