# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms``. Each subcommand has its own file and imports TVM when it runs."""

import argparse
import os
import sys
from collections.abc import Sequence

from ..compat.versions import package_version
from . import (
    bench,
    bundle,
    compare,
    demo,
    doctor,
    merge,
    pretrain,
    report,
    resume,
    run,
    serve,
    space,
    tune,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="droplet-ms", description="Droplet search for Apache TVM's MetaSchedule."
    )
    parser.add_argument(
        "--version", action="version", version=f"droplet-ms {package_version('tvm-droplet-ms')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (
        *(tune, resume, run, bench, bundle, serve, report, doctor, merge),
        *(demo, pretrain, space, compare),
    ):
        command.add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    ``arguments``: the arguments; None for the arguments of the process. Returns 0 for success, and
    1 for a failure that standard error explains or if standard output was closed (as by ``head``).
    An interruption ends the process with status 130. Argparse raises ``SystemExit`` after
    ``--help`` and ``--version``, and with status 2 for bad arguments.
    """
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _is_output_closed():
            raise
        # Python flushes standard output again at exit, which would print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _is_output_closed() -> bool:
    """True if standard output is closed. Otherwise another pipe broke."""
    try:
        print(flush=True)
    except BrokenPipeError:
        return True
    return False
