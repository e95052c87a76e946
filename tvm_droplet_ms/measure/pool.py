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
"""The user's side of the worker processes."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import psutil

from tvm.s_tir.meta_schedule.utils import get_global_func_with_default_on_worker

from .link import Link, TaskFailed
from .server import PoolConfig
from .worker import WorkerConfig, end_left_processes

_STOP_SECS = 5.0
"""How long a server may take to end before it is killed."""


class WorkerPool:
    """Worker processes that stay up, held by a program of their own.

    The program is started at once, without waiting for it, and again for the next task after it
    died. It ends with ``close``, with this object, at the interpreter's exit, and when this
    process is killed; whatever ends it, the workers end and ``directory`` is deleted.

    Parameters
    ----------
    workers : int
        How many processes.
    initializer : Callable[[], None] | None
        What every worker calls before its first task.
    max_tasks : int
        After how many tasks a worker is replaced; 0 for never.
    max_growth : int
        By how many bytes a worker's resident memory may grow before it is replaced.
    memory_limit : int | None
        The address space that a worker may use, in bytes.
    cpus : frozenset[int] | None
        The CPUs that the workers may run on; None for all.
    prepare : Callable[[], None] | None
        What is called once before the workers are forked: imports that all of them need.
    quiet : bool
        Whether the standard error of the workers is discarded.

    Raises
    ------
    OSError
        If the directory cannot be made or the program not be started.
    TypeError
        If ``initializer`` or ``prepare`` cannot be pickled.
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
        self._running_server()

    @property
    def directory(self) -> str:
        """A directory for the files of the tasks, deleted with the workers."""
        return self._running_server().directory

    def submit(
        self, timeout: float, function: Callable[..., Any], *arguments: Any
    ) -> "Future[Any]":
        """Have a worker call a function.

        Parameters
        ----------
        timeout : float
            How long the call may take, in seconds, from when a worker takes it up.
        function : Callable[..., Any]
            The function.
        *arguments : Any
            Its arguments.

        Returns
        -------
        future : Future[Any]
            The result; raises ``TaskFailed`` where there is none.

        Raises
        ------
        TypeError
            If the function or an argument cannot be pickled.
        """
        payload = dump(getattr(function, "__name__", "function"), (function, arguments))
        return self._running_server().submit(payload, timeout)

    def close(self) -> None:
        """End the workers and delete ``directory``. Another task starts them again."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None

    def _running_server(self) -> "_Server":
        with self._lock:
            if self._server is None:
                self._server = self._start(tempfile.mkdtemp(prefix="tvm_droplet_ms_"))
            elif not self._server.is_running:
                # What was built before it died may still have to be measured.
                self._server = self._start(self._server.abandon())
            return self._server

    def _start(self, base: str) -> "_Server":
        try:
            return _Server(base, self.workers, self._worker_options, self._options, self._quiet)
        except OSError:
            shutil.rmtree(base)
            raise


class _Server:
    """One run of the program."""

    def __init__(
        self,
        base: str,
        workers: int,
        worker_options: dict[str, Any],
        options: dict[str, Any],
        quiet: bool,
    ) -> None:
        self.directory = os.path.join(base, "tasks")
        registry = os.path.join(base, "workers")
        os.makedirs(self.directory, exist_ok=True)
        os.makedirs(registry, exist_ok=True)
        config = PoolConfig(workers, WorkerConfig(registry, **worker_options), **options)
        self._connection, other = Pipe()
        # `-c` leaves the program without a main module for Python to import anywhere again.
        code = (
            f"import sys; sys.path[:] = {[str(entry) for entry in sys.path]!r}; "
            f"from {__package__}.server import main; main({other.fileno()}, {os.getpid()})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if quiet else None,
            # What is left there when the program is killed is deleted with the directory.
            env={**os.environ, "TMPDIR": base},
            # Out of the terminal's group, which Ctrl-C interrupts as a whole.
            start_new_session=True,
        )
        other.close()
        self._base = base
        self._finalizer = weakref.finalize(
            self, _end, self._process, self._connection, base, os.getpid()
        )
        self._connection.send_bytes(cloudpickle.dumps(config))
        self._link = Link(self._connection, self._process, registry)
        threading.Thread(
            target=self._link.receive, name="tvm_droplet_ms.measure", daemon=True
        ).start()

    @property
    def is_running(self) -> bool:
        return self._finalizer.alive and self._process.poll() is None

    def submit(self, payload: bytes, timeout: float) -> "Future[Any]":
        return self._link.send(payload, timeout)

    def close(self) -> None:
        self._finalizer()

    def abandon(self) -> str:
        """Forget a program that died; returns the directory, which is kept."""
        self._finalizer.detach()
        return self._base


def available_cpus() -> frozenset[int]:
    """The CPUs that this process may use.

    TVM binds the thread that first runs a parallel kernel, often the main one, to some of them;
    what any thread may use counts.
    """
    cpus: set[int] = set()
    for thread in psutil.Process().threads():
        try:
            cpus |= os.sched_getaffinity(thread.id)
        except ProcessLookupError:
            pass  # It ended meanwhile.
    return frozenset(cpus)


def _check_cpus(cpus: frozenset[int] | None) -> frozenset[int]:
    available = available_cpus()
    if cpus is None:
        return available
    if not cpus or not cpus <= available:
        raise ValueError(f"cpus = {cpus}, expected some of {set(available)}")
    return cpus


def check_functions(
    pool: WorkerPool,
    timeout: float,
    initializer: Callable[[], None] | None,
    functions: Sequence[str | Callable[..., Any] | None],
) -> None:
    """Check, before the first batch, that the workers have the functions that they are to call.

    Parameters
    ----------
    pool : WorkerPool
        The workers.
    timeout : float
        The seconds that this may take.
    initializer : Callable[[], None] | None
        The workers' initializer, which may register functions.
    functions : Sequence[str | Callable[..., Any] | None]
        Functions, which must be picklable, and names of global ones.

    Raises
    ------
    TypeError
        If a function cannot be pickled.
    TaskFailed
        If the initializer raises or no function of that name is registered in a worker.
    """
    names = [function for function in functions if isinstance(function, str)]
    try:
        for function in functions:
            if callable(function):
                dump("function", function)
        if names or initializer is not None:
            pool.submit(timeout, _look_up, names).result()
    except (TypeError, TaskFailed):
        pool.close()
        raise


def _look_up(names: Sequence[str]) -> None:
    for name in names:
        get_global_func_with_default_on_worker(name, None)


def dump(name: str, value: object) -> bytes:
    """Pickle something for a worker, functions of the main module by value.

    Parameters
    ----------
    name : str
        What it is, for the message.
    value : object
        The thing.

    Returns
    -------
    payload : bytes
        For ``cloudpickle.loads``.

    Raises
    ------
    TypeError
        If it cannot be pickled.
    """
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise TypeError(
            f"{name} = {value!r} cannot be sent to a worker process: {error}. Expected something "
            "that cloudpickle can pickle: make it a plain function that opens what it needs itself"
        ) from error


def _end(
    process: "subprocess.Popen[bytes]", connection: Connection, directory: str, owner: int
) -> None:
    """Stop the program, by force if it takes long, and leave nothing behind."""
    if os.getpid() != owner:
        return  # A forked copy of the user's process ends.
    try:
        connection.send(None)
    except OSError:
        pass  # It is gone already.
    try:
        process.wait(_STOP_SECS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    registry = os.path.join(directory, "workers")
    if os.path.isdir(registry):  # The program deletes it, unless it was killed.
        end_left_processes(registry)
    shutil.rmtree(directory, ignore_errors=True)
