# SPDX-License-Identifier: Apache-2.0
"""A worker process: runs one task at a time, within its limits. Imported by the server only."""

import ctypes
import errno
import os
import resource
import signal
import traceback
from multiprocessing.connection import Connection
from typing import NoReturn

import cloudpickle
import psutil

from ..failures import Failure
from .protocol import Reply, WorkerConfig

_MACHINERY_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENFILE, errno.EAGAIN)
"""System errors unrelated to the candidate: no disk space, no processes."""


_kept: list[BaseException] = []
"""The errors of a failed task, which keep the task's objects alive until the server ends this
process. After an illegal access, TVM ends the process when it frees device memory. Without these
references, that would happen before the process reports the error."""


def serve_tasks(connection: Connection, config: WorkerConfig, server: int) -> NoReturn:
    """Run tasks, in a newly forked process, until the connection or the server ends.

    ``connection``: delivers the pickled tasks and takes a ``Reply`` to each. ``server``: the
    server's process id.
    """
    status = 1
    try:
        _set_up(config, server)
        memory = _own_memory()
        initializer = config.initializer
        while True:
            result = run_task(connection.recv_bytes(), initializer)
            if not isinstance(result, Failure):
                initializer = None
            connection.send(Reply(result, _own_memory() - memory))
    except (EOFError, ConnectionError):
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # The exit handlers are copies of the server's and must not run.
        os._exit(status)


def run_task(payload: bytes, initializer: bytes | None) -> bytes | Failure:
    """Run the initializer, then a task; returns the pickled value or a ``Failure``."""
    try:
        if initializer is not None:
            cloudpickle.loads(initializer)()
        function, arguments = cloudpickle.loads(payload)
        return bytes(cloudpickle.dumps(function(*arguments)))
    except MemoryError:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        bound = "" if limit == resource.RLIM_INFINITY else f" of {limit >> 20} MiB"
        return Failure(
            "error", f"out of memory within the worker's limit{bound}\n{traceback.format_exc()}"
        )
    except BaseException as error:  # Even SystemExit must end only this task.
        _kept.append(error)
        of_system = _is_of_the_system(error)
        return Failure("machinery" if of_system else "error", traceback.format_exc())


def _is_of_the_system(error: BaseException | None) -> bool:
    """True if an exception or one of its causes is a system error, not the task's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in _MACHINERY_ERRORS:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _own_memory() -> int:
    """Resident memory not backed by files, in bytes."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)


def _set_up(config: WorkerConfig, server: int) -> None:
    # With a process group per worker, the server can end child processes of a build: linker, nvcc.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent(server)
    stderr = os.open(os.devnull, os.O_WRONLY) if config.stderr is None else config.stderr
    os.dup2(stderr, 2)
    if config.memory_limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        unlimited = hard == resource.RLIM_INFINITY
        limit = config.memory_limit if unlimited else min(hard, config.memory_limit)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    os.sched_setaffinity(0, config.cpus)
    if len(config.cpus) < (os.cpu_count() or 1):
        # TVM would bind its threads to CPUs 0, 1, and so on, even if they are not allowed.
        os.environ["TVM_BIND_THREADS"] = "0"


def _die_with_parent(server: int) -> None:
    """Let the kernel end this process when the server ends for any reason."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(0)
