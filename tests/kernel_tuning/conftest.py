# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of ``tune_kernel`` without measurements."""

import pytest
from made_up_measuring import GOOD_SECS, SharedPool, StubBuilder, StubRunner

from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm_droplet_ms.tuning.kernel import choice, kernel_run
from tvm_droplet_ms.tuning.kernel import measuring as kernel_measuring
from tvm_droplet_ms.tuning.kernel.check import verification


@pytest.fixture(scope="session")
def shared_pool():
    shared = SharedPool()
    yield shared
    shared.pool.close()


@pytest.fixture
def one_check(monkeypatch):
    """Has one schedule checked once."""
    monkeypatch.setattr(choice, "BEST", 1)
    monkeypatch.setattr(verification, "ROUNDS", 1)


@pytest.fixture
def measuring(monkeypatch, shared_pool, one_check):
    """Replaces the builder and the runner."""
    monkeypatch.setattr(kernel_run, "verifying_pool", lambda _: shared_pool)

    def replace(results=tuple(RunnerResult([secs], None) for secs in GOOD_SECS), error=None):
        monkeypatch.setattr(
            kernel_measuring,
            "fast_measure",
            lambda *_, **__: {"builder": StubBuilder(error), "runner": StubRunner(results)},
        )

    replace()
    return replace
