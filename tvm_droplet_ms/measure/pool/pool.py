# SPDX-License-Identifier: Apache-2.0
"""The user's side of long-lived worker processes, and a stand-in for them."""

import math
import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import psutil

from .client import WorkerClient
from .program import Program
from .protocol import PoolConfig, WorkerConfig

_STOP_SECS = 5.0
"""Seconds that a server may take to end before it is killed."""


def require_linux(name: str) -> None:
    """Raise ``RuntimeError`` in the name of a class or function if this is not Linux."""
    if sys.platform != "linux":
        raise RuntimeError(
            f"{name} needs Linux, and sys.platform is {sys.platform!r}: its worker processes rely "
            "on Linux's process control. Tune with TVM's LocalBuilder and LocalRunner "
            "(tvm.s_tir.meta_schedule.builder, tvm.s_tir.meta_schedule.runner) instead"
        )


def available_cpus() -> frozenset[int]:
    """The CPUs that any thread of this process may use.

    TVM binds the thread that first runs a parallel kernel, often the main thread, to some of the
    CPUs, so the affinity of one thread is too small a set. Returns the numbers of the logical CPUs;
    all of them on a system without CPU affinity.
    """
    if not hasattr(os, "sched_getaffinity"):
        return frozenset(range(os.cpu_count() or 1))
    cpus: set[int] = set()
    for thread in psutil.Process().threads():
        try:
            cpus |= os.sched_getaffinity(thread.id)
        except ProcessLookupError:
            pass  # The thread has ended in the meantime.
    return frozenset(cpus)


def _check_cpus(cpus: frozenset[int] | None) -> frozenset[int]:
    """Return the given CPUs; None for all. Raises ``ValueError`` if empty or not available."""
    available = available_cpus()
    if cpus is None:
        return available
    if not cpus or not cpus <= available:
        raise ValueError(f"cpus = {cpus}, expected some of {set(available)}")
    return cpus


class WorkerPool:
    """Long-lived worker processes, held by a separate program.

    The constructor starts the program, the worker server, without waiting for it. If the server
    dies, the next task starts it again. The server ends with ``close``, with this object, at
    interpreter exit, and when this process is killed. In each case the workers end and
    ``directory`` is deleted.

    Parameters
    ----------
    workers : int
        The number of worker processes.
    initializer : Callable[[], None] | None
        A function that every worker calls before its first task.
    max_tasks : int
        The number of tasks after which a worker is replaced; 0 for never.
    max_growth : int
        The growth of a worker's resident memory at which it is replaced, in bytes.
    memory_limit : int | None
        The address space that a worker may use, in bytes.
    cpus : frozenset[int] | None
        The CPUs that the workers may run on; None for all.
    prepare : Callable[[], None] | None
        A function that is called once before the workers are forked, for imports that all workers
        need.
    quiet : bool
        Whether to discard the workers' standard error. The server's standard error is quoted when
        a task fails because the server ended.

    Raises
    ------
    OSError
        If the directory cannot be made or the program cannot be started.
    RuntimeError
        If this is not Linux, or no thread can be started.
    TypeError
        If ``initializer`` or ``prepare`` cannot be pickled.
    ValueError
        If ``workers`` is less than 1 or ``cpus`` names a CPU that is not available.
    """

    def __init__(
        self,
        workers: int,
        *,
        initializer: Callable[[], None] | None = None,
        max_tasks: int = 0,
        max_growth: int = 1 << 30,
        memory_limit: int | None = None,
        cpus: frozenset[int] | None = None,
        prepare: Callable[[], None] | None = None,
        quiet: bool = False,
    ) -> None:
        require_linux("WorkerPool")
        if workers < 1:
            raise ValueError(f"workers = {workers}, expected at least 1")
        self.workers = workers
        self._options = {"max_tasks": max_tasks, "max_growth": max_growth, "prepare": prepare}
        self._worker_options = {
            "initializer": None if initializer is None else dump("initializer", initializer),
            "memory_limit": memory_limit,
            "cpus": _check_cpus(cpus),
        }
        self._quiet = quiet
        self._server: _Server | None = None
        self._lock = threading.Lock()
        self._latest = math.inf
        self._running_server()

    @property
    def directory(self) -> str:
        """A directory for the files of the tasks, deleted with the workers."""
        return self._running_server().directory

    def submit(
        self, timeout: float, function: Callable[..., Any], *arguments: Any, fresh: bool = False
    ) -> "Future[Any]":
        """Have a worker call a function.

        ``timeout``: the time limit of the call in seconds, from when a worker starts it. ``fresh``:
        whether to call the function in a new process, which then replaces a worker. The future
        raises ``TaskFailed`` if there is no result, and cannot be canceled. Raises ``OSError`` or
        ``RuntimeError`` if the workers had ended and cannot be started again. Raises ``TypeError``
        if the function or an argument cannot be pickled.
        """
        payload = dump(getattr(function, "__name__", "function"), (function, arguments))
        return self._running_server().submit(payload, timeout, self._latest, fresh)

    def end_by(self, moment: float) -> None:
        """Set a deadline for the tasks that are submitted from now on.

        ``moment``: a time of ``time.monotonic``; infinity for no limit. At this time, running tasks
        are ended and waiting tasks are dropped. Both fail as closed.
        """
        self._latest = moment

    def drop_tasks(self) -> None:
        """End all running and waiting tasks, which fail. Keep ``directory`` for the next task."""
        with self._lock:
            if self._server is not None:
                self._server.kill()

    def close(self) -> None:
        """End the workers and delete ``directory``. Another task starts them again."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None

    def _running_server(self) -> "_Server":
        with self._lock:
            if self._server is None:
                base = tempfile.mkdtemp(prefix="tvm_droplet_ms_")
                try:
                    self._server = self._start(base)
                except BaseException:
                    shutil.rmtree(base, ignore_errors=True)
                    raise
            elif not self._server.is_running:
                # Artifacts that were built before the server died may still have to be measured, so
                # the next server takes over the directory. If it does not start, the old server
                # still deletes the directory.
                server = self._start(self._server.base)
                self._server.abandon()
                self._server = server
            return self._server

    def _start(self, base: str) -> "_Server":
        # A thread may retry while the interpreter's exit ends the workers and deletes their
        # directory.
        if not threading.main_thread().is_alive():
            raise RuntimeError("no worker process can be started: the interpreter is ending")
        return _Server(base, self.workers, self._worker_options, self._options, self._quiet)


class ThisProcess:
    """Calls functions at once, in this process; see ``WorkerPool``."""

    directory = None

    def submit(
        self, timeout: float, function: Callable[..., Any], *arguments: Any
    ) -> "Future[Any]":
        """Call a function; ``timeout`` does not hold here."""
        future: Future[Any] = Future()
        # The error belongs to whoever asks for the result.
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def drop_tasks(self) -> None:
        """Do nothing: each task has ended."""


class _Server:
    """One run of the worker server."""

    def __init__(
        self,
        base: str,
        workers: int,
        worker_options: dict[str, Any],
        options: dict[str, Any],
        quiet: bool,
    ) -> None:
        self.base = base
        self.directory = os.path.join(base, "tasks")
        os.makedirs(self.directory, exist_ok=True)
        connection, server_end = Pipe()
        stderr = None if quiet else _duplicate_stderr()
        try:
            config = PoolConfig(workers, WorkerConfig(stderr=stderr, **worker_options), **options)
            payload = dump("prepare", config)
            self._program = Program(server_end, base, stderr)
        finally:
            server_end.close()
            if stderr is not None:
                os.close(stderr)
        try:
            connection.send_bytes(payload)
            self._client = WorkerClient(connection, self._program)
            threading.Thread(
                target=self._client.receive, name="tvm_droplet_ms.measure", daemon=True
            ).start()
        except BaseException:
            self._program.kill()
            self._program.wait()
            raise
        self._finalizer = weakref.finalize(self, _end, self._program, connection, base, os.getpid())

    @property
    def is_running(self) -> bool:
        return self._finalizer.alive and not self._program.has_ended()

    def submit(self, payload: bytes, timeout: float, latest: float, fresh: bool) -> "Future[Any]":
        return self._client.send(payload, timeout, latest, fresh)

    def kill(self) -> None:
        self._program.kill()
        self._program.wait()

    def close(self) -> None:
        self._client.close()
        self._finalizer()

    def abandon(self) -> None:
        """Leave the directory to another server."""
        self._finalizer.detach()


def _duplicate_stderr() -> int | None:
    """Duplicate the file descriptor of standard error; None if there is none."""
    try:
        return os.dup(2)
    except OSError:
        return None


def dump(name: str, value: object) -> bytes:
    """Pickle a value for ``cloudpickle.loads`` in a worker; main-module functions go by value.

    ``name``: the name of the value, for the message. Raises ``TypeError`` if the value cannot be
    pickled.
    """
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise TypeError(
            f"{name} = {repr(value)[:500]} cannot be sent to a worker process: {error}. Expected "
            "something that cloudpickle can pickle: make it a plain function that opens what it "
            "needs itself"
        ) from error


def _end(program: Program, connection: Connection, directory: str, owner: int) -> None:
    """Stop the program, by force if it takes too long, and delete the directory."""
    if os.getpid() != owner:
        return  # This process is a forked copy of the user's process.
    try:
        connection.send(None)
    except OSError:
        pass  # The program has ended already.
    try:
        if not program.wait(_STOP_SECS):
            program.kill()
            program.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
