# SPDX-License-Identifier: Apache-2.0
"""The number of threads of TVM's runtime."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import tvm_ffi

import tvm

from ..runtime.tvm_runtime import forget_threads
from .errors import ModelError
from .given_inputs import is_integer

_ENVIRONMENT = "TVM_NUM_THREADS"

_BINDING = "TVM_BIND_THREADS"
"""TVM binds each thread of its pool to a core, but not the calling thread. If the system runs the
calling thread on the core of another, the two take turns: four models on two threads had 0.90 to
0.96 times the speed of one thread, and 1.72 to 1.88 times without binding, on any core."""


def check_threads(count: int) -> None:
    """Raise ``ModelError`` for fewer threads than one, or more than this machine has CPUs."""
    available = os.cpu_count() or 1
    if not is_integer(count, 1) or count > available:
        raise ModelError(
            f"threads={count!r}: expected an int from 1 to {available}, the CPUs of this machine"
        )


def set_worker_threads(count: int) -> None:
    """Set the number of kernel threads of processes and threads that start from now on.

    The kernel threads are not bound to cores, unless the environment says so.
    """
    os.environ[_ENVIRONMENT] = str(count)
    os.environ.setdefault(_BINDING, "0")


@contextmanager
def worker_threads(count: int) -> Iterator[None]:
    """Set the number of kernel threads of processes that start within the context."""
    before = {name: os.environ.get(name) for name in (_ENVIRONMENT, _BINDING)}
    set_worker_threads(count)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def set_own_threads(count: int) -> None:
    """Set the number of threads that this thread runs kernels on.

    Raises ``ModelError`` if TVM's pool has started with fewer threads: the pool never grows.
    """
    set_worker_threads(count)
    forget_threads()
    big_cores = 1  # mode kBig of src/runtime/threading_backend.cc
    tvm_ffi.get_global_func("runtime.config_threadpool")(big_cores, count)
    running = int(tvm.runtime.num_threads())
    if running != count:
        raise ModelError(
            f"threads={count}: TVM's thread pool of this process has started with {running}, and "
            "never grows; tune with the most threads first, or in another process"
        )
