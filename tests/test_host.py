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
"""The host's target, threads and BLAS rate."""

import os
import subprocess
import sys

import numpy as np
import psutil
import pytest
import threadpoolctl

from tvm_droplet_ms import host


def test_the_target_names_this_cpu_and_its_cores() -> None:
    target = host.host_target()
    assert target.kind.name == "llvm"
    assert target.attrs["mcpu"]
    assert int(target.attrs["num-cores"]) == (psutil.cpu_count(logical=False) or 1)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_threads_are_those_set_as_far_as_there_are_cores(num_threads: int) -> None:
    # The runtime reads the environment once, so it takes a process of its own.
    program = "from tvm_droplet_ms.host import tvm_num_threads; print(tvm_num_threads())"
    environment = {**os.environ, "TVM_NUM_THREADS": str(num_threads)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == min(num_threads, os.cpu_count() or 1)


def test_the_blas_rate_is_that_of_the_fastest_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each multiplication reads the clock before and after: it takes 4, then 1, then 2 seconds.
    clock = iter([0.0, 4.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(host.time, "perf_counter", lambda: next(clock))
    assert host.blas_gflops(1, size=100, repeats=3) == pytest.approx(2e6 / 1.0 / 1e9)


def test_blas_runs_with_the_threads_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    matmul = np.matmul

    def spy(*args: object, **kwargs: object) -> object:
        pools = threadpoolctl.threadpool_info()
        seen.extend(pool["num_threads"] for pool in pools if pool["user_api"] == "blas")
        return matmul(*args, **kwargs)

    monkeypatch.setattr(host.np, "matmul", spy)
    assert host.blas_gflops(1, size=64, repeats=2) > 0
    assert seen and set(seen) == {1}


def test_a_blas_that_cannot_be_limited_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.threadpoolctl, "threadpool_info", lambda: [])
    with pytest.raises(RuntimeError, match="cannot be limited to 2 threads"):
        host.blas_gflops(2, size=8, repeats=1)
