# SPDX-License-Identifier: Apache-2.0
"""Client side of the worker server: pending tasks and their futures."""

import itertools
import threading
import traceback
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from ..failures import Failure, FailureKind
from .program import Program
from .protocol import Task


class TaskFailed(Exception):
    """A task has no result; ``kind`` and ``message`` are as in ``Failure``."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind

    @property
    def failure(self) -> Failure:
        """The failure as a value."""
        return Failure(self.kind, str(self))


class WorkerClient:
    """The pending tasks of one worker server.

    It is separate from the object that owns the server, which the receiving thread would otherwise
    keep alive. ``connection``: the user's end of the connection to the server.
    """

    def __init__(self, connection: Connection, program: Program) -> None:
        self._connection = connection
        self._program = program
        self._futures: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._has_ended = False
        self._is_closing = False
        # Two locks, so that receiving does not wait for sending.
        self._sending = threading.Lock()
        self._lock = threading.Lock()

    def send(self, payload: bytes, timeout: float, latest: float, fresh: bool) -> "Future[Any]":
        """Send a pickled task with its limits; see ``Task``."""
        future: Future[Any] = Future()
        # A running future cannot be canceled, so a result always finds it pending.
        future.set_running_or_notify_cancel()
        with self._lock:
            number = next(self._numbers)
            self._futures[number] = future
            has_ended = self._has_ended
        if has_ended:
            self._fail_pending()
            return future
        try:
            with self._sending:
                self._connection.send(Task(number, payload, timeout, latest, fresh))
        except OSError:
            pass  # The server died: receive() notices it too, and fails all pending futures.
        return future

    def close(self) -> None:
        """Expect the server to end: pending tasks then fail as closed."""
        self._is_closing = True

    def receive(self) -> None:
        """Set results of futures until the server ends; pending futures then fail."""
        try:
            while True:
                number, result = self._connection.recv()
                with self._lock:
                    future = self._futures.pop(number)
                _resolve(future, result)
                # The frames of an exception keep the waiting caller alive.
                del future, result
        except (EOFError, OSError):
            pass  # The server has ended.
        except BaseException:
            self._program.kill()  # No thread listens to the program any more.
            raise
        finally:
            with self._lock:
                self._has_ended = True
            self._fail_pending()

    def _fail_pending(self) -> None:
        failure = self._wait_for_end()
        with self._lock:
            pending = list(self._futures.values())
            self._futures.clear()
        for future in pending:
            future.set_exception(TaskFailed(failure.kind, failure.message))

    def _wait_for_end(self) -> Failure:
        """Wait for the server and its workers to end; returns the reason."""
        try:
            self._program.wait()
            if self._is_closing:
                return Failure("closed", "closed before the task was done")
            return Failure("machinery", self._program.describe_end())
        except Exception as error:
            message = f"the program that holds the worker processes ended badly: {error!r}"
            return Failure("machinery", message)


def _resolve(future: "Future[Any]", result: bytes | Failure) -> None:
    if isinstance(result, Failure):
        future.set_exception(TaskFailed(result.kind, result.message))
        return
    try:
        value = cloudpickle.loads(result)
    except Exception:
        future.set_exception(TaskFailed("error", traceback.format_exc()))
    else:
        future.set_result(value)
