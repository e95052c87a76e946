# SPDX-License-Identifier: Apache-2.0
"""Waits for a server, and raises an error with an explanation if there is none."""

import threading
import time

from .tracker import FleetError, Lease, Tracker

_TURN_SECS = 1.0
"""Seconds of one request to the tracker; the clock is checked between requests."""


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
