# SPDX-License-Identifier: Apache-2.0
"""The worker server: a program that holds the workers.

It is a separate program for two reasons. First, Python's ``spawn`` and ``forkserver`` import the
user's main module again in every worker. This would run a script without a ``__main__`` guard
twice, and a notebook has no main module to import. Second, a worker forked from the server starts
in milliseconds with TVM imported, without the threads, files and locks of the user's process. The
server runs no Python threads, so that it may fork at any time.

The pebble package is unsuitable: its workers share one channel, so that killing one can break the
others; it does not replace workers that grow; and it waits 3 s for a worker that ignores SIGTERM.
"""

import os
import shutil
import signal
import time
from collections import deque
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import NoReturn

import cloudpickle

from ..failures import TIME_LIMIT, Failure
from .program import SIGNALS, let_pytorch_in
from .protocol import PoolConfig, Reply, Task, WorkerConfig
from .worker import serve_tasks

_PARENT_SECS = 1.0
"""Seconds between two checks that the user's process is alive."""

_DELETION_SECS = 5.0
"""Seconds during which the deletion of the directory is retried."""

_OVER = "because the time is over"

_FULL_BYTES = 1 << 20
"""Free bytes below which a disk counts as full."""


def main(descriptor: int, parent: int, directory: str) -> None:
    """Serve tasks until the user's process sends stop or ends.

    - ``descriptor``: the file descriptor of the server's end of a ``multiprocessing`` connection.
      It receives a pickled ``PoolConfig``, then each ``Task``, and None at the end; it sends pairs
      of a task's number and its pickled value or ``Failure``.
    - ``parent``: the process id of the user's process.
    - ``directory``: the directory of all temporary files. The server deletes it, unless the server
      fails while the user's process is alive and may still need the artifacts in it.
    """
    # A signal that ends the user's process may also be sent to its children. The server ignores it:
    # it ends when the connection closes, so that it can clean up.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    connection = Connection(descriptor)
    is_done = False
    try:
        config: PoolConfig = cloudpickle.loads(connection.recv_bytes())
        if config.prepare is not None:
            config.prepare()
        let_pytorch_in()
        _Server(connection, config, parent, directory).serve()
        is_done = True
    finally:
        if is_done or _is_orphan(parent):
            _delete(directory)


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
        self.deadline = min(time.monotonic() + task.timeout, task.latest)
        self.connection.send_bytes(task.payload)
        self.tasks_done += 1

    def end(self) -> int:
        """End the process and its children; returns the exit code as subprocess does."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # The worker has left its group, or ended before it had one.
        os.kill(self.pid, signal.SIGKILL)
        self.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class _Server:
    def __init__(
        self, connection: Connection, config: PoolConfig, parent: int, directory: str
    ) -> None:
        self._connection = connection
        self._config = config
        self._parent = parent
        self._directory = directory
        self._waiting: deque[Task] = deque()
        self._workers: list[_Worker] = []

    def serve(self) -> None:
        try:
            while os.getppid() == self._parent:
                self._fork_missing_workers()
                self._begin_tasks()
                if not self._receive():
                    return
                self._end_late_tasks()
        except OSError:
            if not _is_orphan(self._parent):
                raise
        finally:
            for worker in self._workers:
                self._retire(worker)

    def _begin_tasks(self) -> None:
        self._drop_late_tasks()
        while self._waiting:
            self._fork_missing_workers()
            worker = next((worker for worker in self._workers if worker.task is None), None)
            if worker is None:
                return
            if self._waiting[0].fresh and worker.tasks_done > 0:
                self._retire(worker)
                continue
            task = self._waiting.popleft()
            try:
                worker.begin(task)
            except OSError:
                if worker.tasks_done == 0:
                    self._bury(worker)
                else:  # The worker may have died before this task.
                    self._retire(worker)
                    self._waiting.appendleft(task)

    def _drop_late_tasks(self) -> None:
        """Fail the waiting tasks whose time is over."""
        now = time.monotonic()
        for task in [task for task in self._waiting if task.latest <= now]:
            self._waiting.remove(task)
            self._connection.send((task.number, Failure("closed", f"not begun, {_OVER}")))

    def _receive(self) -> bool:
        """Wait for messages and handle them; returns False after a stop message."""
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
        has_failed = isinstance(reply.result, Failure)
        self._answer(worker, reply.result)
        is_old = 0 < self._config.max_tasks <= worker.tasks_done
        # A failed task may leave open files or other state that breaks later tasks.
        if is_old or has_failed or reply.growth > self._config.max_growth:
            self._retire(worker)

    def _end_late_tasks(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            if worker.task is not None and worker.deadline <= now:
                failure = Failure(
                    "timeout", f"killed after {worker.task.timeout:g} s, {TIME_LIMIT}"
                )
                if worker.deadline == worker.task.latest:
                    failure = Failure("closed", f"ended, {_OVER}")
                self._retire(worker)
                self._answer(worker, failure)

    def _bury(self, worker: _Worker) -> None:
        """Handle a worker that ended by itself."""
        code = self._retire(worker)
        if worker.task is not None:
            self._answer(worker, Failure("crash", _describe_exit(code, self._config.worker)))

    def _answer(self, worker: _Worker, result: bytes | Failure) -> None:
        assert worker.task is not None
        if isinstance(result, Failure) and result.kind in ("error", "crash"):
            result = self._blame_a_full_disk(result)
        self._connection.send((worker.task.number, result))
        worker.task = None

    def _blame_a_full_disk(self, failure: Failure) -> Failure:
        """Attribute a failure to the machinery if the disk is full, which breaks any build."""
        if not _is_full(self._directory):
            return failure
        message = f"{failure.message}; the disk of {self._directory} is full"
        return Failure("machinery", message)

    def _retire(self, worker: _Worker) -> int:
        self._workers = [other for other in self._workers if other is not worker]
        return worker.end()

    def _fork_missing_workers(self) -> None:
        """Start missing workers; if none can be started, the waiting tasks fail."""
        while len(self._workers) < self._config.workers:
            try:
                self._fork()
            except OSError as error:
                while self._waiting and not self._workers:
                    message = f"no worker process can be started: {error}"
                    task = self._waiting.popleft()
                    self._connection.send((task.number, Failure("machinery", message)))
                return

    def _fork(self) -> None:
        ours, theirs = Pipe()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            self._become_worker(ours, theirs)
        theirs.close()
        self._workers.append(_Worker(pid, ours))

    def _become_worker(self, ours: Connection, theirs: Connection) -> NoReturn:
        # A worker must hold only its own end of a connection: EOF needs all copies to be closed.
        ours.close()
        self._connection.close()
        for worker in self._workers:
            worker.connection.close()
        serve_tasks(theirs, self._config.worker, os.getppid())


def _is_orphan(parent: int) -> bool:
    """True if the user's process has ended; its connection closes a moment before it is gone."""
    end = time.monotonic() + _PARENT_SECS
    while os.getppid() == parent:
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True


def _delete(directory: str) -> None:
    """Delete a directory into which recently killed processes may still write a file."""
    end = time.monotonic() + _DELETION_SECS
    shutil.rmtree(directory, ignore_errors=True)
    while os.path.exists(directory) and time.monotonic() < end:
        time.sleep(0.05)
        shutil.rmtree(directory, ignore_errors=True)


def _is_full(directory: str) -> bool:
    """True if no more files can be written to the disk of a directory."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return False
    # Root may use the reserved blocks.
    blocks = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    return blocks * disk.f_frsize < _FULL_BYTES or (disk.f_files > 0 and disk.f_ffree == 0)


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
