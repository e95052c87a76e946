# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms serve``."""

import argparse
from typing import Any

from .arguments import command, fail, port, positive


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    serve = command(
        commands, "serve", _run, "let droplet-ms tune --tracker measure on this machine"
    )
    serve.add_argument("--tracker", required=True, metavar="HOST:PORT", help="TVM's RPC tracker")
    serve.add_argument("--key", required=True, help="the key to register under")
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen on, which the machine that tunes can reach "
        "(default: %(default)s, this machine only)",
    )
    serve.add_argument("--port", type=port, help="the port (default: a free one from 9090)")
    serve.add_argument(
        "--threads", type=positive, help="the most threads of kernels (default: TVM's choice)"
    )


def _run(options: argparse.Namespace) -> int:
    """Run TVM's RPC server until Ctrl-C, so that it outlives kernels that crash. It runs whatever
    it is sent, for everyone who reaches its port: use it in trusted networks only."""
    from ..measure.fleet.serve import serve

    def tell(address: str) -> None:
        print(f"{options.key!r} at {address}, for the tracker {options.tracker}", flush=True)

    try:
        serve(
            options.tracker,
            options.key,
            host=options.host,
            port=options.port,
            threads=options.threads,
            on_start=tell,
        )
    except (OSError, ValueError, RuntimeError) as error:
        return fail("serve", error)
    return 0
