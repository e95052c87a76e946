# SPDX-License-Identifier: Apache-2.0
"""Assigns each call to a server, and decides who is at fault for a lost session."""

import socket
import time
from collections.abc import Callable
from typing import Any

from ..failures import Failure
from ..pool import TaskFailed, WorkerPool
from .session import CONNECT_SECS, Lost, call_on_server
from .tracker import FleetError, Lease, Servers

_ANSWER_SECS = 10.0
"""Seconds that a server may take to report that a session reached its time limit."""

_SETTLE_SECS = 1.0
"""Seconds until a killed server has ended and the tracker has noticed."""

_PROBE_SECS = 3.0
"""Maximum seconds for a port to accept a connection."""


class Remote:
    """Calls functions on the servers of a key, with a new session for each call.

    A server forks a process for each session, so each call runs in a new process. ``pool``: the
    workers of this machine that hold the sessions; one call per worker runs at a time.
    """

    def __init__(self, servers: Servers, pool: WorkerPool) -> None:
        self.servers = servers
        self._pool = pool

    @property
    def workers(self) -> int:
        """Maximum number of concurrent calls."""
        return self._pool.workers

    def close(self) -> None:
        """End the workers of this machine, and so their sessions."""
        self._pool.close()

    def call(self, limit: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on a free server.

        Unreachable servers are skipped. The session is the function's first argument. ``limit``:
        the seconds after which the server ends the session. Returns the function's result or a
        ``Failure``: "machinery" if the server is at fault, and "timeout", "crash" or "error" if the
        function is. Raises ``FleetError`` if no server could be reached for too long.
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
        """Decide whether the candidate crashed the session's process, or the server ended.

        TVM's server stops listening when the process of a session ends with an error
        (``_listen_loop`` in ``rpc/server.py``), but its program keeps running and holds the port. A
        server that was killed, or whose machine went down, holds no port.
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
