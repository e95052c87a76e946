# SPDX-License-Identifier: Apache-2.0
"""Messages between the user's process, the worker server and its workers."""

from collections.abc import Callable
from dataclasses import dataclass

from ..failures import Failure


@dataclass(frozen=True)
class WorkerConfig:
    """Set-up of a worker.

    Parameters
    ----------
    initializer : bytes | None
        A pickled function that every worker calls before its first task.
    memory_limit : int | None
        The address space that a worker may use, in bytes.
    cpus : frozenset[int]
        The CPUs that a worker may run on.
    stderr : int | None
        The file descriptor of a worker's standard error, inherited; None discards it.
    """

    initializer: bytes | None
    memory_limit: int | None
    cpus: frozenset[int]
    stderr: int | None


@dataclass(frozen=True)
class PoolConfig:
    """Set-up of the worker server.

    Parameters
    ----------
    workers : int
        The largest number of workers.
    worker : WorkerConfig
        The set-up of each.
    max_tasks : int
        The number of tasks after which a worker is replaced; 0 for never.
    max_growth : int
        The growth of a worker's resident memory at which it is replaced, in bytes.
    prepare : Callable[[], None] | None
        A function that the server calls before it forks the first worker.
    """

    workers: int
    worker: WorkerConfig
    max_tasks: int
    max_growth: int
    prepare: Callable[[], None] | None


@dataclass(frozen=True)
class Task:
    """A function call for a worker.

    Parameters
    ----------
    number : int
        The task's name in the answer.
    payload : bytes
        A pickled pair of a function and its arguments.
    timeout : float
        The seconds that it may take, from when a worker begins it.
    fresh : bool
        Whether it is the first task of its worker.
    """

    number: int
    payload: bytes
    timeout: float
    fresh: bool


@dataclass(frozen=True)
class Reply:
    """A worker's answer to a task.

    Parameters
    ----------
    result : bytes | Failure
        The pickled value that the function returned, or the reason why there is none.
    growth : int
        The growth of the worker's own resident memory since it started, in bytes.
    """

    result: bytes | Failure
    growth: int
