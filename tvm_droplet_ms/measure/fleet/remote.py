# SPDX-License-Identifier: Apache-2.0
"""Gives each call a server, and says whose fault a lost session is."""

import socket
import time
from collections.abc import Callable
from typing import Any

from ..failures import Failure
from ..pool import TaskFailed, WorkerPool
from .servers import Servers
from .session import CONNECT_SECS, Lost, call_on_server
from .tracker import FleetError, Lease

_ANSWER_SECS = 10.0
"""Seconds after the limit of a session that its server may take to say so."""

_SETTLE_SECS = 1.0
"""Seconds after which a server that was killed has ended, and the tracker knows."""

_PROBE_SECS = 3.0
"""The most seconds that a port may take to accept a connection."""


class Remote:
    """Calls functions with sessions on the servers of a key, a session for each call.

    A server forks a process for each session, so each call runs in a new process. ``pool``: the
    workers of this machine that hold the sessions: as many calls run at once.
    """

    def __init__(self, servers: Servers, pool: WorkerPool) -> None:
        self.servers = servers
        self._pool = pool

    @property
    def workers(self) -> int:
        """The number of calls that run at once."""
        return self._pool.workers

    def close(self) -> None:
        """End the workers of this machine, and so their sessions."""
        self._pool.close()

    def call(self, limit: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on a server that is free.

        Servers that cannot be reached are passed over. ``limit``: the seconds after which the
        server ends the session, which is the function's first argument. Returns what the function
        returns, or why there is nothing: "machinery" where the server is at fault, and "timeout",
        "crash" or "error" where what ran there is. Raises ``FleetError`` if no server could be
        reached for too long.
        """
        while True:
            lease = self.servers.lease()
            outcome: Any = Lost(False, "")
            try:
                outcome = self._call_on(lease, limit, function, arguments)
            finally:
                was_reached = not isinstance(outcome, Lost) or outcome.was_reached
                self.servers.give_back(was_reached=was_reached)
            if not isinstance(outcome, Lost):
                return outcome
            if was_reached:
                return self._judge(lease, outcome)

    def _call_on(
        self, lease: Lease, limit: float, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        patience = CONNECT_SECS + limit + _ANSWER_SECS
        task = (lease, limit, function, arguments)
        try:
            return self._pool.submit(patience, call_on_server, *task).result()
        except TaskFailed as error:
            if error.kind == "timeout":
                return Failure("machinery", f"the server {lease} was silent for {patience:g} s")
            return Failure("machinery", f"the session on the server {lease}: {error}")
        except (OSError, RuntimeError) as error:
            return Failure("machinery", f"the worker cannot be started: {error}")

    def _judge(self, lease: Lease, lost: Lost) -> Failure:
        """Say whether what ran ended its process, or the server ended.

        TVM's server stops listening where a process of a session ends with an error
        (``_listen_loop`` in ``rpc/server.py``), but its program stays and holds the port. A server
        that was killed, or whose machine was, holds none.
        """
        time.sleep(_SETTLE_SECS)
        try:
            registered = self.servers.tracker.servers(self.servers.key)
        except FleetError as error:
            return Failure("machinery", f"the session on the server {lease} was lost: {error}")
        if (lease.host, lease.port) in registered:
            return Failure(
                "machinery", f"the session on the server {lease} was lost: {lost.message}"
            )
        if _accepts(lease):
            return Failure(
                "crash",
                f"it ended its process on the server {lease}, which takes no further session: "
                "start it anew, with droplet-ms serve, whose servers outlive crashes",
            )
        return Failure("machinery", f"the server {lease} ended: {lost.message}")


def _accepts(lease: Lease) -> bool:
    try:
        with socket.create_connection((lease.host, lease.port), _PROBE_SECS):
            return True
    except OSError:
        return False
