# SPDX-License-Identifier: Apache-2.0
"""The environment of processes that run kernels."""

import os

import pytest

from tvm_droplet_ms.session.threads import set_worker_threads, worker_threads

NAMES = ("TVM_NUM_THREADS", "TVM_BIND_THREADS")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # So that it is restored.
        monkeypatch.delenv(name)


def test_threads_are_not_bound_to_cores():
    set_worker_threads(2)
    assert [os.environ[name] for name in NAMES] == ["2", "0"]


def test_a_binding_that_is_asked_for_stays(monkeypatch):
    monkeypatch.setenv("TVM_BIND_THREADS", "1")
    set_worker_threads(2)
    assert os.environ["TVM_BIND_THREADS"] == "1"


def test_the_environment_is_restored(monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "5")
    with worker_threads(2):
        assert [os.environ[name] for name in NAMES] == ["2", "0"]
    assert os.environ["TVM_NUM_THREADS"] == "5"
    assert "TVM_BIND_THREADS" not in os.environ
