# SPDX-License-Identifier: Apache-2.0
"""The number of threads of TVM's runtime."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import tvm_ffi

import tvm

from .errors import ModelError

_ENVIRONMENT = "TVM_NUM_THREADS"


def set_worker_threads(count: int) -> None:
    """Have processes, and threads, that start from now on run kernels on so many threads."""
    os.environ[_ENVIRONMENT] = str(count)


@contextmanager
def worker_threads(count: int) -> Iterator[None]:
    """Within it, processes that start run kernels on so many threads."""
    before = os.environ.get(_ENVIRONMENT)
    set_worker_threads(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ENVIRONMENT]
        else:
            os.environ[_ENVIRONMENT] = before


def set_own_threads(count: int) -> None:
    """Have this thread run kernels on so many threads.

    Raises ``ModelError`` if TVM's pool has started with fewer: it never grows.
    """
    set_worker_threads(count)
    big_cores = 1  # mode kBig of src/runtime/threading_backend.cc
    tvm_ffi.get_global_func("runtime.config_threadpool")(big_cores, count)
    running = int(tvm.runtime.num_threads())
    if running != count:
        raise ModelError(
            f"threads={count}: TVM's thread pool of this process has started with {running}; set "
            f"{_ENVIRONMENT}={count} before the process starts"
        )
