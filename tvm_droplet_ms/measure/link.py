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
"""What has been sent to the worker processes, and what comes back."""

import itertools
import os
import subprocess
import threading
import traceback
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from .server import Failure, Task
from .worker import end_left_processes


class TaskFailed(Exception):
    """A task that has no result.

    Parameters
    ----------
    kind : str
        "error" if it raised, "timeout", or "crash" if its worker ended.
    message : str
        In words.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Link:
    """The tasks that are under way in the program that holds the workers.

    Apart from the object that owns the program, which the thread that receives would otherwise
    keep alive.

    Parameters
    ----------
    connection : Connection
        This end of the connection to the program.
    process : subprocess.Popen[bytes]
        The program.
    registry : str
        The directory in which its workers leave a file each.
    """

    def __init__(
        self, connection: Connection, process: "subprocess.Popen[bytes]", registry: str
    ) -> None:
        self._connection = connection
        self._process = process
        self._registry = registry
        self._futures: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._is_closed = False
        # Two, so that what is heard does not wait for what is being sent.
        self._sending = threading.Lock()
        self._lock = threading.Lock()

    def send(self, payload: bytes, timeout: float) -> "Future[Any]":
        """Send a pickled task with its time limit in seconds; see ``WorkerPool.submit``."""
        future: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._futures[number] = future
            is_closed = self._is_closed
        if is_closed:
            self._fail_all()
            return future
        try:
            with self._sending:
                self._connection.send(Task(number, payload, timeout))
        except OSError:
            pass  # The program died: receive() sees it too, and fails all futures.
        return future

    def receive(self) -> None:
        """Hand results to their futures until the program ends."""
        while True:
            try:
                number, result = self._connection.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                future = self._futures.pop(number)
            if isinstance(result, Failure):
                future.set_exception(TaskFailed(result.kind, result.message))
            else:
                _unpickle(result, future)
            # An exception holds the frames that it went through, and so whoever waited for it.
            del future, result
        with self._lock:
            self._is_closed = True
        self._fail_all()

    def _fail_all(self) -> None:
        with self._lock:
            lost = list(self._futures.values())
            self._futures.clear()
        if lost:
            status = self._process.wait()
            if os.path.isdir(self._registry):
                end_left_processes(self._registry)
            message = f"the program that holds the worker processes ended, with status {status}"
            for future in lost:
                future.set_exception(TaskFailed("crash", message))


def _unpickle(result: bytes, future: "Future[Any]") -> None:
    try:
        value = cloudpickle.loads(result)
    except Exception:
        future.set_exception(TaskFailed("error", traceback.format_exc()))
    else:
        future.set_result(value)
