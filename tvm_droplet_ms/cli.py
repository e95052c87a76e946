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
"""The command line."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import metadata

from .bench.commands import add_commands as add_bench_commands
from .demo import DemoError, run_demo
from .pretrain_command import add_commands as add_model_commands


def _version() -> str:
    try:
        return metadata.version("tvm-droplet-ms")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _trials(text: str) -> int:
    try:
        trials = int(text)
    except ValueError:
        trials = 0
    if trials < 2:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of trials, expected an integer of at least 2: "
            "one to explore and one to descend"
        )
    return trials


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="droplet-ms", description="Droplet search for Apache TVM's MetaSchedule."
    )
    parser.add_argument("--version", action="version", version=f"droplet-ms {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="tune a matmul and a 3x3 convolution for this machine's CPU",
        description="Tune a matmul and a 3x3 convolution for this machine's CPU, check the tuned "
        "kernels against the untuned ones, and print what each phase of the search reached.",
    )
    demo.add_argument(
        "--trials",
        type=_trials,
        default=64,
        help="measured trials for each kernel, up to 8 of them explore (default: %(default)s)",
    )
    demo.add_argument(
        "--seed", type=int, default=0, help="of the search and the inputs (default: %(default)s)"
    )
    demo.add_argument(
        "--work-dir",
        help="where the database and TVM's logs go; an earlier one is resumed "
        "(default: a new temporary directory, which is kept)",
    )
    demo.add_argument(
        "--verbose", action="store_true", help="show TVM's own log on the console too"
    )
    demo.add_argument(
        "--profile", action="store_true", help="print where the time of the tuning went"
    )
    demo.set_defaults(run=_run_demo)
    add_model_commands(commands)
    add_bench_commands(commands)
    return parser


def _run_demo(options: argparse.Namespace) -> int:
    try:
        run_demo(
            trials=options.trials,
            seed=options.seed,
            work_dir=options.work_dir,
            verbose=options.verbose,
            profile=options.profile,
        )
    except DemoError as error:
        print(f"droplet-ms demo: error: {error}", file=sys.stderr)
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : Sequence[str] | None
        The arguments; None for those of the process.

    Returns
    -------
    status : int
        0, or 1 after a failure that the standard error words, or where the standard output was
        closed, as ``head`` does. An interruption ends the process with 130.

    Raises
    ------
    SystemExit
        From argparse: after ``--help`` and ``--version``, and with status 2 for bad arguments.
    """
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _is_output_closed():
            raise
        # Python flushes the standard output once more as it ends, and would print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _is_output_closed() -> bool:
    """Whether a line printed now has no reader; otherwise another pipe is the broken one."""
    try:
        print(flush=True)
    except BrokenPipeError:
        return True
    return False
