# SPDX-License-Identifier: Apache-2.0
"""The environment of processes that run kernels."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.threads import set_own_threads, set_worker_threads, worker_threads

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


def test_more_threads_than_before_are_refused_with_what_to_do(monkeypatch):
    """TVM has a pool for each thread of a process; the environment does not make one grow."""
    message = "threads=2: TVM's thread pool .* started with 1, and never grows; tune with the most"
    monkeypatch.setenv("TVM_NUM_THREADS", "2")
    with ThreadPoolExecutor(1) as few, ThreadPoolExecutor(1) as many:
        few.submit(set_own_threads, 1).result()
        with pytest.raises(ModelError, match=message):
            few.submit(set_own_threads, 2).result()
        for count in (2, 1, 2):
            many.submit(set_own_threads, count).result()
