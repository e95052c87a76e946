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
"""Fixtures for tests of ``tune_kernel`` without measurements."""

import pytest
from made_up_measuring import GOOD_SECS, SharedPool, StubBuilder, StubRunner

from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm_droplet_ms.kernel_tuning import choice, kernel_run, verification


@pytest.fixture(scope="session")
def shared_pool():
    shared = SharedPool()
    yield shared
    shared.pool.close()


@pytest.fixture
def measuring(monkeypatch, shared_pool):
    """Replaces the builder and the runner, and has one schedule checked once."""
    monkeypatch.setattr(kernel_run, "verifying_pool", lambda: shared_pool)
    monkeypatch.setattr(choice, "BEST", 1)
    monkeypatch.setattr(verification, "ROUNDS", 1)

    def replace(results=tuple(RunnerResult([secs], None) for secs in GOOD_SECS), error=None):
        monkeypatch.setattr(
            kernel_run,
            "fast_measure",
            lambda *_, **__: {"builder": StubBuilder(error), "runner": StubRunner(results)},
        )

    replace()
    return replace
