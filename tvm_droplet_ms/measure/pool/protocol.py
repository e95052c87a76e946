# SPDX-License-Identifier: Apache-2.0
"""Messages between the user's process, the worker server and its workers."""

from collections.abc import Callable
from dataclasses import dataclass

from ..failures import Failure


@dataclass(frozen=True)
class WorkerConfig:
    """Settings of a worker.

    - ``initializer``: a pickled function that every worker calls before its first task.
    - ``memory_limit``: the address space that a worker may use, in bytes.
    - ``cpus``: the CPUs that a worker may run on.
    - ``stderr``: the file descriptor of a worker's standard error, inherited; None discards it.
    """

    initializer: bytes | None
    memory_limit: int | None
    cpus: frozenset[int]
    stderr: int | None


@dataclass(frozen=True)
class PoolConfig:
    """Settings of the worker server.

    - ``workers``: the maximum number of workers.
    - ``max_tasks``: the number of tasks after which a worker is replaced; 0 for never.
    - ``max_growth``: the growth of a worker's resident memory at which it is replaced, in bytes.
    - ``prepare``: a function that the server calls before it forks the first worker.
    """

    workers: int
    worker: WorkerConfig
    max_tasks: int
    max_growth: int
    prepare: Callable[[], None] | None


@dataclass(frozen=True)
class Task:
    """A function call for a worker.

    - ``number``: identifies the task in the answer.
    - ``payload``: a pickled pair of a function and its arguments.
    - ``timeout``: the time limit in seconds, from when a worker starts the task.
    - ``latest``: the time, by the machine's monotonic clock, at which the task is ended or dropped.
    - ``fresh``: whether the task must be the first task of its worker.
    """

    number: int
    payload: bytes
    timeout: float
    latest: float
    fresh: bool


@dataclass(frozen=True)
class Reply:
    """A worker's answer to a task.

    ``result``: the pickled return value, or the reason that there is none.
    ``growth``: the growth of the worker's own resident memory since it started, in bytes.
    """

    result: bytes | Failure
    growth: int
