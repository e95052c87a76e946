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

    Raises
    ------
    ModelError
        If TVM's pool has started with fewer: it never grows.
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
