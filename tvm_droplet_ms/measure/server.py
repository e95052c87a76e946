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
"""The program that holds the workers.

It is a program of its own for two reasons. Python's ``spawn`` and ``forkserver`` import the user's
main module again in every worker, which runs a script without a ``__main__`` guard twice, and
which a notebook does not have. And forked from here, a worker starts in milliseconds with TVM
imported, without any of the threads, files and locks of the user's process.
"""

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import cloudpickle
import psutil
from pebble import ProcessExpired, ProcessPool

from .worker import Reply, WorkerConfig, run_task, start_worker


@dataclass(frozen=True)
class PoolConfig:
    """The workers of a pool.

    Parameters
    ----------
    workers : int
        How many.
    worker : WorkerConfig
        How each is set up. The folder that holds its directory belongs to the server, which
        deletes it when it ends.
    max_tasks : int
        After how many tasks a worker is replaced; 0 for never.
    max_growth : int
        By how many bytes a worker's resident memory may grow before all are replaced, which is
        done as soon as none is busy.
    prepare : Callable[[], None] | None
        What the server calls before it forks the first worker, so that none has to.
    """

    workers: int
    worker: WorkerConfig
    max_tasks: int = 0
    max_growth: int = 1 << 30
    prepare: Callable[[], None] | None = None


@dataclass(frozen=True)
class Failure:
    """Why a task has no result.

    Parameters
    ----------
    kind : str
        "error" if it raised, "timeout", "crash" if its worker ended, or "lost" if it never began,
        because the pool broke; it may be sent again.
    message : str
        In words.
    """

    kind: str
    message: str


def main(descriptor: int) -> None:
    """Serve tasks until the other end of the connection says stop, or is gone.

    Parameters
    ----------
    descriptor : int
        A file descriptor: the server's end of a ``multiprocessing`` connection. It sends a pickled
        ``PoolConfig``, then triples of a number, a task and a timeout in seconds; it gets pairs of
        a number and a result or ``Failure``.
    """
    # The terminal sends Ctrl-C to every process of the group; the user's decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    config: PoolConfig = cloudpickle.loads(connection.recv_bytes())
    try:
        if config.prepare is not None:
            config.prepare()
        _Server(connection, config).serve()
    finally:
        shutil.rmtree(Path(config.worker.directory).parent, ignore_errors=True)


class _Server:
    def __init__(self, connection: Connection, config: PoolConfig) -> None:
        self._connection = connection
        self._config = config
        self._lock = threading.Lock()
        self._busy = 0
        self._memory_limit = psutil.Process().memory_info().rss + config.max_growth
        self._has_grown = False
        self._pool = self._make_pool()

    def serve(self) -> None:
        try:
            while (message := self._connection.recv()) is not None:
                self._schedule(*message)
        except (EOFError, ConnectionError):
            pass  # The user's process is gone.
        finally:
            self._stop_pool()

    def _make_pool(self) -> ProcessPool:
        pool = ProcessPool(
            max_workers=self._config.workers,
            max_tasks=self._config.max_tasks,
            initializer=start_worker,
            initargs=(self._config.worker, os.getpid(), self._connection.fileno()),
            context=multiprocessing.get_context("fork"),
        )
        if not pool.active:  # To ask is what starts the workers.
            raise RuntimeError("no worker process could be started")
        return pool

    def _stop_pool(self) -> None:
        self._pool.stop()
        self._pool.join()
        self._end_left_processes()

    def _schedule(self, number: int, payload: bytes, timeout: float) -> None:
        with self._lock:
            replace = not self._pool.active or (self._has_grown and self._busy == 0)
            self._busy += 1
        if replace:
            self._stop_pool()
            self._has_grown = False
            self._pool = self._make_pool()
        future = self._pool.schedule(run_task, args=(payload,), timeout=timeout)
        future.add_done_callback(partial(self._reply, number, timeout))

    def _reply(self, number: int, timeout: float, future: "Future[Reply]") -> None:
        if future.cancelled():
            return  # The pool is being stopped: nobody waits any more.
        result = self._result(future, timeout)
        with self._lock:
            self._busy -= 1
            try:
                self._connection.send((number, result))
            except OSError:
                pass  # The user's process is gone; serve() sees it too.

    def _result(self, future: "Future[Reply]", timeout: float) -> object:
        error = future.exception()
        if isinstance(error, TimeoutError | ProcessExpired):
            self._end_left_processes()
        if isinstance(error, TimeoutError):
            return Failure("timeout", f"killed after {timeout:g} s, its time limit")
        if isinstance(error, ProcessExpired):
            return Failure("crash", _describe_exit(error.exitcode, self._config.worker))
        if isinstance(error, BrokenProcessPool):
            # pebble gives up when a worker dies that had nothing to do.
            return Failure("lost", f"the worker pool broke: {error}")
        if error is not None:  # The result could not be pickled, for one.
            return Failure("error", repr(error))
        reply = future.result()
        if reply.memory > self._memory_limit:
            self._has_grown = True
        return Failure("error", reply.error) if reply.error is not None else reply.value

    def _end_left_processes(self) -> None:
        """End what workers that are gone had started."""
        for path in Path(self._config.worker.directory).iterdir():
            pid = int(path.name)
            if not psutil.pid_exists(pid):
                try:
                    os.killpg(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                path.unlink(missing_ok=True)


def _describe_exit(code: int, config: WorkerConfig) -> str:
    if code >= 0:
        return f"its process ended with status {code}"
    name = signal.Signals(-code).name
    hint = ""
    if name == "SIGKILL":
        hint = ", by hand or by the system for want of memory"
    elif name == "SIGABRT" and config.memory_limit is not None:
        hint = f", perhaps at the limit of {config.memory_limit >> 20} MiB of memory"
    return f"its process was ended by {name}{hint}"
