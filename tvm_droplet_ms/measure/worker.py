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
"""What runs in a worker process: its limits, and one task at a time."""

import ctypes
import os
import resource
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    cpus : frozenset[int] | None
        The CPUs that a worker may run on; None for all.
    """

    directory: str
    initializer: bytes | None = None
    memory_limit: int | None = None
    cpus: frozenset[int] | None = None


@dataclass(frozen=True)
class Reply:
    """What a task came to.

    Parameters
    ----------
    value : Any
        What the function returned.
    error : str | None
        The traceback of what it raised instead.
    memory : int
        The resident memory of the worker afterwards, in bytes.
    """

    value: Any
    error: str | None
    memory: int


_pending_initializer: bytes | None = None


def start_worker(config: WorkerConfig, server_pid: int, inherited: int) -> None:
    """Set up a worker that was just forked from the server.

    Parameters
    ----------
    config : WorkerConfig
        How.
    server_pid : int
        The process that must not be outlived.
    inherited : int
        The server's end of its connection, a file descriptor that this process must not hold.
    """
    global _pending_initializer
    os.close(inherited)
    # A group of its own lets the server end what a build started: a linker, nvcc.
    os.setpgid(0, 0)
    # pebble's handler runs in Python, so it would wait for a build that hangs in C++.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent(server_pid)
    if config.memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_AS, (config.memory_limit, config.memory_limit))
    if config.cpus is not None:
        os.sched_setaffinity(0, config.cpus)
    Path(config.directory, str(os.getpid())).touch()
    _pending_initializer = config.initializer


def run_task(payload: bytes) -> Reply:
    """Run a task, in a worker.

    Parameters
    ----------
    payload : bytes
        A pickled pair of a function and its arguments.

    Returns
    -------
    reply : Reply
        What came of it.
    """
    value, error = None, None
    try:
        _initialize_once()
        function, arguments = cloudpickle.loads(payload)
        value = function(*arguments)
    except MemoryError:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        bound = "" if limit == resource.RLIM_INFINITY else f" of {limit >> 20} MiB"
        error = f"out of memory within the worker's limit{bound}\n{traceback.format_exc()}"
    except BaseException:  # SystemExit too must cost no more than this task.
        error = traceback.format_exc()
    return Reply(value, error, psutil.Process().memory_info().rss)


def _initialize_once() -> None:
    global _pending_initializer
    if _pending_initializer is not None:
        cloudpickle.loads(_pending_initializer)()
        _pending_initializer = None


def _die_with_parent(server_pid: int) -> None:
    """Have the kernel end this process when the server ends, however that happens."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
        ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != server_pid:
            os._exit(0)
