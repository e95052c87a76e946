# SPDX-License-Identifier: Apache-2.0
"""Queries to TVM's RPC tracker, each with a time limit, and the servers that it knows.

``tvm.rpc.TrackerSession`` retries for a minute if nothing listens, and its ``request`` waits
forever if there is no server.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm.rpc import base

_ANSWER_SECS = 5.0
"""Maximum seconds for a tracker to answer."""

_TURN_SECS = 1.0
"""Seconds of one request to the tracker; the clock is checked between requests."""


class FleetError(RuntimeError):
    """The tracker or its servers cannot be used; the message says what to do.

    TVM turns it into a plain ``RuntimeError`` when it propagates through ``tune_tir``.
    """


@dataclass(frozen=True)
class Lease:
    """The right to one session on a server.

    ``host``, ``port``: the server's address. ``match_key``: the key that the client must present to
    the server; it admits one session.
    """

    host: str
    port: int
    match_key: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Tracker:
    """A client of an RPC tracker.

    ``address``: ``HOST:PORT``. Raises ``FleetError`` if the address has another form.
    """

    def __init__(self, address: str) -> None:
        host, colon, port = address.rpartition(":")
        if not host or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise FleetError(
                f"tracker is {address!r}, expected HOST:PORT, such as 192.168.1.10:9190"
            )
        self.address = address
        self.host_and_port = (host.strip("[]"), int(port))

    def servers(self, key: str) -> set[tuple[str, int]]:
        """The hosts and ports of a key's servers. Raises ``FleetError`` if no tracker answers."""
        with self._connection() as connection:
            status = _ask(connection, [base.TrackerCode.SUMMARY])
        return {
            (str(info["addr"][0]), int(info["addr"][1]))
            for info in status["server_info"]
            if info["key"] == f"server:{key}"
        }

    def request(self, key: str, secs: float) -> Lease | None:
        """Ask for a server of a key.

        ``secs``: how long to wait for a free server. Returns None if no server became free. Raises
        ``FleetError`` if the tracker does not answer.
        """
        with self._connection() as connection:
            connection.settimeout(secs)
            try:
                host, port, match_key = _ask(connection, [base.TrackerCode.REQUEST, key, "", 1])
            except TimeoutError:
                return None
        return Lease(str(host), int(port), str(match_key))

    @contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        try:
            with socket.create_connection(self.host_and_port, _ANSWER_SECS) as connection:
                magic = struct.pack("<i", base.RPC_TRACKER_MAGIC)
                connection.sendall(magic)
                if base.recvall(connection, len(magic)) != magic:
                    raise FleetError(f"{self.address} is no RPC tracker: another program listens")
                yield connection
        except OSError as error:
            raise FleetError(
                f"the tracker at {self.address} does not answer: {error}. Start one: "
                f"python -m tvm.exec.rpc_tracker --host HOST --port {self.host_and_port[1]}"
            ) from error


def _ask(connection: socket.socket, message: list[Any]) -> Any:
    base.sendjson(connection, message)
    status, answer = base.recvjson(connection)
    if status != base.TrackerCode.SUCCESS:
        raise OSError(f"it answered {status} to {message}")
    return answer


class Servers:
    """The servers of a key.

    ``tracker``: their tracker. ``wait_secs``: how long to wait for a server while no session of
    this process is open.
    """

    def __init__(self, tracker: Tracker, key: str, wait_secs: float) -> None:
        self.tracker = tracker
        self.key = key
        self._wait_secs = wait_secs
        self._lock = threading.Lock()
        self._open = 0
        self._last_reached = time.monotonic()

    def count(self) -> int:
        """The number of servers that the tracker knows, at least 1."""
        try:
            return max(1, len(self.tracker.servers(self.key)))
        except FleetError:  # The tracker may come back; ``lease`` waits for it.
            return 1

    def begin(self) -> None:
        """Restart the waiting time: until now, no server was needed."""
        with self._lock:
            self._last_reached = time.monotonic()

    def await_one(self) -> None:
        """Wait until the tracker knows a server.

        Raises ``FleetError`` at once if the tracker does not answer, and after ``wait_secs`` if
        there is no server.
        """
        end = time.monotonic() + self._wait_secs
        while not self.tracker.servers(self.key):
            if time.monotonic() > end:
                raise FleetError(self._words())
            time.sleep(min(_TURN_SECS, self._wait_secs))

    def lease(self) -> Lease:
        """Wait for a free server.

        Raises ``FleetError`` if no server could be reached for ``wait_secs`` while no session of
        this process was open.
        """
        while True:
            turn = time.monotonic()
            try:
                lease = self.tracker.request(self.key, _TURN_SECS)
            except FleetError:
                lease = None
                time.sleep(max(0.0, turn + _TURN_SECS - time.monotonic()))
            with self._lock:
                idle = time.monotonic() - self._last_reached
                if lease is None and not self._open and idle > self._wait_secs:
                    raise FleetError(self._words())
                if lease is not None:
                    self._open += 1
                    return lease

    def give_back(self, *, was_reached: bool) -> None:
        """Return a server; ``was_reached`` tells whether its session was opened."""
        with self._lock:
            self._open -= 1
            if was_reached:
                self._last_reached = time.monotonic()

    def _words(self) -> str:
        try:
            known = len(self.tracker.servers(self.key))
        except FleetError as error:
            return f"{error} It has not answered for {self._wait_secs:g} s"
        start = (
            f"droplet-ms serve --tracker {self.tracker.address} --key {self.key}, or "
            f"python -m tvm.exec.rpc_server --tracker {self.tracker.address} --key {self.key}"
        )
        if known:
            return (
                f"none of the {known} servers of the key {self.key!r} at the tracker "
                f"{self.tracker.address} was free for {self._wait_secs:g} s: others measure on "
                f"them, or they hang. Start another: {start}"
            )
        return (
            f"the tracker at {self.tracker.address} has had no server of the key {self.key!r} for "
            f"{self._wait_secs:g} s. Start one: {start}"
        )
