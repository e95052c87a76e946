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
imported, without any of the threads, files and locks of the user's process. It runs no Python
threads of its own, so that it may fork at any time.

pebble, which does much of this, was tried first: its workers share one channel, so that one that
is killed at the wrong moment takes the others along; it replaces workers after a number of tasks
but not when they grow; and it waits 3 s for one that ignores SIGTERM.
"""

import os
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

import cloudpickle

from .worker import Reply, WorkerConfig, serve_tasks

_PARENT_SECS = 1.0
"""How often to look whether the user's process is still there."""

TIME_LIMIT = "its time limit"
"""How the message of a task that took too long ends."""


@dataclass(frozen=True)
class PoolConfig:
    """The workers of a pool.

    Parameters
    ----------
    workers : int
        How many there are at most.
    worker : WorkerConfig
        How each is set up. The folder that holds its directory belongs to the server, which
        deletes it when it ends.
    max_tasks : int
        After how many tasks a worker is replaced; 0 for never.
    max_growth : int
        By how many bytes a worker's resident memory may grow before it is replaced.
    prepare : Callable[[], None] | None
        What the server calls before it forks the first worker, so that none has to.
    """

    workers: int
    worker: WorkerConfig
    max_tasks: int
    max_growth: int
    prepare: Callable[[], None] | None


@dataclass(frozen=True)
class Failure:
    """Why a task has no result.

    Parameters
    ----------
    kind : str
        "error" if it raised, "timeout", or "crash" if its worker ended.
    message : str
        In words.
    """

    kind: str
    message: str


@dataclass(frozen=True)
class Task:
    """A task of the user's process.

    Parameters
    ----------
    number : int
        What it is known by.
    payload : bytes
        A pickled function and its arguments.
    timeout : float
        The seconds that it may take, from when a worker begins it.
    """

    number: int
    payload: bytes
    timeout: float


def main(descriptor: int, parent: int) -> None:
    """Serve tasks until the user's process says stop, or is gone.

    Parameters
    ----------
    descriptor : int
        A file descriptor: the server's end of a ``multiprocessing`` connection. It sends a pickled
        ``PoolConfig``, then each ``Task``, and None at the end; it gets pairs of a task's number
        and its pickled value or ``Failure``.
    parent : int
        The process id of the user's process.
    """
    # Those who end the user's process may send these to all its children too. The end of the
    # connection is what ends this one, and lets it clean up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = Connection(descriptor)
    config: PoolConfig = cloudpickle.loads(connection.recv_bytes())
    try:
        if config.prepare is not None:
            config.prepare()
        _Server(connection, config, parent).serve()
    finally:
        shutil.rmtree(Path(config.worker.directory).parent, ignore_errors=True)


class _Worker:
    """A worker process, as the server sees it."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid = pid
        self.connection = connection
        self.task: Task | None = None
        self.deadline = 0.0
        self.tasks_done = 0

    def begin(self, task: Task) -> None:
        self.task = task
        self.deadline = time.monotonic() + task.timeout
        self.connection.send_bytes(task.payload)
        self.tasks_done += 1

    def end(self) -> int:
        """End the process and what it started; returns the exit code, as subprocess has it."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # It has left that group, or ended before it had one.
        os.kill(self.pid, signal.SIGKILL)
        self.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class _Server:
    def __init__(self, connection: Connection, config: PoolConfig, parent: int) -> None:
        self._connection = connection
        self._config = config
        self._parent = parent
        self._waiting: deque[Task] = deque()
        self._workers: list[_Worker] = []

    def serve(self) -> None:
        try:
            for _ in range(self._config.workers):
                self._fork()
            while os.getppid() == self._parent:
                self._begin_tasks()
                if not self._hear():
                    return
                self._end_late_tasks()
        except OSError:
            if os.getppid() == self._parent:
                raise
        finally:
            for worker in self._workers:
                self._retire(worker)

    def _begin_tasks(self) -> None:
        while self._waiting:
            while len(self._workers) < self._config.workers:
                self._fork()
            worker = next((worker for worker in self._workers if worker.task is None), None)
            if worker is None:
                return
            task = self._waiting.popleft()
            try:
                worker.begin(task)
            except OSError:
                if worker.tasks_done == 0:
                    self._bury(worker)
                else:  # It may have been dead before.
                    self._retire(worker)
                    self._waiting.appendleft(task)

    def _hear(self) -> bool:
        """Wait for news and deal with it; returns False when told to stop."""
        deadlines = [worker.deadline for worker in self._workers if worker.task is not None]
        patience = min([_PARENT_SECS, *(deadline - time.monotonic() for deadline in deadlines)])
        workers: dict[object, _Worker] = {worker.connection: worker for worker in self._workers}
        listening = [self._connection, *(worker.connection for worker in self._workers)]
        for ready in wait(listening, max(0.0, patience)):
            if ready is self._connection:
                try:
                    message = self._connection.recv()
                except EOFError:
                    return False
                if message is None:
                    return False
                self._waiting.append(message)
            else:
                self._finish(workers[ready])
        return True

    def _finish(self, worker: _Worker) -> None:
        try:
            reply: Reply = worker.connection.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        self._answer(worker, reply.value if reply.error is None else Failure("error", reply.error))
        is_old = 0 < self._config.max_tasks <= worker.tasks_done
        # What fails may leave open files behind, or other things that later tasks trip over.
        if is_old or reply.error is not None or reply.growth > self._config.max_growth:
            self._retire(worker)
            self._fork()

    def _end_late_tasks(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            if worker.task is not None and worker.deadline <= now:
                message = f"killed after {worker.task.timeout:g} s, {TIME_LIMIT}"
                self._retire(worker)
                self._answer(worker, Failure("timeout", message))
                self._fork()

    def _bury(self, worker: _Worker) -> None:
        """Deal with a worker that ended by itself."""
        code = self._retire(worker)
        if worker.task is not None:
            self._answer(worker, Failure("crash", _describe_exit(code, self._config.worker)))

    def _answer(self, worker: _Worker, result: object) -> None:
        assert worker.task is not None
        self._connection.send((worker.task.number, result))
        worker.task = None

    def _retire(self, worker: _Worker) -> int:
        self._workers = [other for other in self._workers if other is not worker]
        code = worker.end()
        Path(self._config.worker.directory, str(worker.pid)).unlink(missing_ok=True)
        return code

    def _fork(self) -> None:
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            self._become_worker(ours, theirs)
        theirs.close()
        self._workers.append(_Worker(pid, ours))

    def _become_worker(self, ours: Connection, theirs: Connection) -> NoReturn:
        # It must hold no end of a connection but its own: an end is only seen once all are closed.
        ours.close()
        self._connection.close()
        for worker in self._workers:
            worker.connection.close()
        serve_tasks(theirs, self._config.worker, os.getppid())


def _describe_exit(code: int, config: WorkerConfig) -> str:
    if code >= 0:
        hint = ", as LLVM does when the temporary directory is full" if code == 1 else ""
        return f"its process ended with status {code}{hint}"
    known = -code in set(signal.Signals)
    name = signal.Signals(-code).name if known else f"signal {-code}"
    hint = ""
    if name == "SIGKILL":
        hint = ", by hand or by the system for want of memory"
    elif config.memory_limit is not None:
        hint = f", perhaps at the limit of {config.memory_limit >> 20} MiB of memory"
    return f"its process was ended by {name}{hint}"
