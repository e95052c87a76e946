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
"""What runs in a worker process: one task at a time, within its limits."""

import ctypes
import os
import resource
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import cloudpickle
import psutil


@dataclass(frozen=True)
class WorkerConfig:
    """How a worker is set up.

    Parameters
    ----------
    directory : str
        Where a worker leaves a file named by its process id, so that the processes which it
        started can be found after it is gone.
    initializer : bytes | None
        A pickled function that every worker calls before its first task.
    memory_limit : int | None
        The address space that a worker may use, in bytes.
    cpus : frozenset[int]
        The CPUs that a worker may run on.
    """

    directory: str
    initializer: bytes | None
    memory_limit: int | None
    cpus: frozenset[int]


@dataclass(frozen=True)
class Reply:
    """What a task came to.

    Parameters
    ----------
    value : bytes | None
        What the function returned, pickled.
    error : str | None
        The traceback of what it raised instead.
    growth : int
        By how many bytes the worker's own resident memory has grown since it started.
    """

    value: bytes | None
    error: str | None
    growth: int


def serve_tasks(connection: Connection, config: WorkerConfig, server: int) -> NoReturn:
    """Run tasks, in a process that was just forked, until the connection or the server ends.

    Parameters
    ----------
    connection : Connection
        Gives the pickled tasks, and takes the pickled ``Reply`` of each.
    config : WorkerConfig
        How to set this process up.
    server : int
        The process id of the server.
    """
    status = 1
    try:
        _set_up(config, server)
        memory = _own_memory()
        initializer = config.initializer
        while True:
            value, error = run_task(connection.recv_bytes(), initializer)
            if error is None:
                initializer = None
            connection.send(Reply(value, error, _own_memory() - memory))
    except (EOFError, ConnectionError):
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Nothing of the server's, which this is a copy of, may run at exit.
        os._exit(status)


def run_task(payload: bytes, initializer: bytes | None) -> tuple[bytes | None, str | None]:
    """Run a task.

    Parameters
    ----------
    payload : bytes
        A pickled pair of a function and its arguments.
    initializer : bytes | None
        A pickled function to call before.

    Returns
    -------
    value : bytes | None
        What the function returned, pickled.
    error : str | None
        The traceback of what it raised instead.
    """
    try:
        if initializer is not None:
            cloudpickle.loads(initializer)()
        function, arguments = cloudpickle.loads(payload)
        return cloudpickle.dumps(function(*arguments)), None
    except MemoryError:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        bound = "" if limit == resource.RLIM_INFINITY else f" of {limit >> 20} MiB"
        return None, f"out of memory within the worker's limit{bound}\n{traceback.format_exc()}"
    except BaseException:  # SystemExit too must cost no more than this task.
        return None, traceback.format_exc()


def _own_memory() -> int:
    """The resident memory that is not a file's, in bytes."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)


def _set_up(config: WorkerConfig, server: int) -> None:
    # A group of its own lets the server end what a build started: a linker, nvcc.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent(server)
    if config.memory_limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        unlimited = hard == resource.RLIM_INFINITY
        limit = config.memory_limit if unlimited else min(hard, config.memory_limit)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    os.sched_setaffinity(0, config.cpus)
    if len(config.cpus) < (os.cpu_count() or 1):
        # TVM would bind its threads to CPUs by their number, from 0, whatever is allowed.
        os.environ["TVM_BIND_THREADS"] = "0"
    Path(config.directory, str(os.getpid())).touch()


def _die_with_parent(server: int) -> None:
    """Have the kernel end this process when the server ends, however that happens."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
        ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(0)


def end_left_processes(directory: str) -> None:
    """End what workers that are gone had started.

    Parameters
    ----------
    directory : str
        The directory in which each worker left a file.
    """
    for path in Path(directory).iterdir():
        try:
            os.killpg(int(path.name), signal.SIGKILL)
        except ProcessLookupError:
            pass  # It left nothing.
        path.unlink(missing_ok=True)
