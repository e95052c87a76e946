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
"""The machine that this process runs on: its target, its threads and its BLAS rate."""

import time

import numpy as np
import threadpoolctl

import tvm
from tvm.s_tir.meta_schedule.utils import cpu_count
from tvm.target import Target


def host_target() -> Target:
    """Detect the target of the host CPU.

    Returns
    -------
    target : Target
        Kind ``llvm`` with ``mcpu`` as LLVM names this CPU and ``num-cores``, the number of
        physical cores, which MetaSchedule's parallelisation rule requires.
    """
    return Target(
        {
            "kind": "llvm",
            "mcpu": str(Target.from_device("cpu").attrs["mcpu"]),
            "num-cores": cpu_count(logical=False),
        }
    )


def tvm_num_threads() -> int:
    """Ask TVM's runtime how many threads a parallel kernel uses in this process.

    On x86 that is half of the logical CPUs, unless the environment sets ``TVM_NUM_THREADS`` or
    ``OMP_NUM_THREADS`` (``src/runtime/threading_backend.cc``, ``MaxConcurrency``).
    """
    return int(tvm.runtime.num_threads())


def blas_gflops(num_threads: int, *, size: int = 1024, repeats: int = 10) -> float:
    """Measure the float32 matrix multiplication of NumPy's BLAS.

    Parameters
    ----------
    num_threads : int
        The number of threads that BLAS may use.
    size : int
        Both operands are square matrices of this many rows.
    repeats : int
        The number of timed multiplications, after one that is not timed.

    Returns
    -------
    rate : float
        The rate of the fastest multiplication, in GFLOP/s (``2 * size**3`` operations each).

    Raises
    ------
    RuntimeError
        If threadpoolctl cannot limit the threads of NumPy's BLAS (Apple's Accelerate, for one):
        the rate would be that of an unknown number of threads.
    """
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    out = np.empty((size, size), dtype=np.float32)
    with threadpoolctl.threadpool_limits(limits=num_threads, user_api="blas"):
        if not any(pool["user_api"] == "blas" for pool in threadpoolctl.threadpool_info()):
            raise RuntimeError(
                "threadpoolctl knows no BLAS library in this process, so NumPy's BLAS cannot be "
                f"limited to {num_threads} threads. Expected OpenBLAS, MKL, BLIS or FlexiBLAS: "
                "install NumPy from PyPI or conda"
            )
        np.matmul(lhs, rhs, out=out)
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            np.matmul(lhs, rhs, out=out)
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds) / 1e9
