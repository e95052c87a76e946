# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests."""

import logging
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
TESTS = ROOT / "tests"
PATHS = [str(ROOT / "papers"), str(TESTS / "started")]
# `benchmarks` and `papers` may not be installed. At the end, so that what is installed is tested:
# pytest has put the folder of this file first.
if sys.path[0] == str(ROOT):
    del sys.path[0]
sys.path += [str(ROOT), *PATHS, str(TESTS)]
# TVM binds the threads of every process to the first CPUs: two test runs would share one of them.
os.environ.setdefault("TVM_BIND_THREADS", "0")
# Two test processes share the CPUs: threads of OpenMP that only wait are not to take them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_configure(config):
    """Have a worker of pytest-xdist that dies be a failure, and the others run the rest.

    With one in its place, pytest-xdist 3.8 waits for ever where the last test of a file died, and
    runs any other up to nine times.
    """
    if getattr(config.option, "maxworkerrestart", "") is None:
        config.option.maxworkerrestart = "0"


@pytest.fixture(autouse=True, scope="session")
def paths_of_programs():
    """Programs that tests start find the same, and no PyTorch."""
    paths = [os.environ.get("PYTHONPATH", ""), *PATHS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        yield


@pytest.fixture(autouse=True, scope="session")
def warm_servers(paths_of_programs):
    """Worker servers are forked from one program that has imported TVM."""
    from warm_server import WarmServers

    from tvm_droplet_ms.measure.pool import program

    servers = WarmServers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "subprocess", servers)
        yield servers
    servers.close()


@pytest.fixture(autouse=True, scope="session")
def intrinsics_that_are_parsed_quickly():
    """TVM's first ``TuneContext`` imports them all: in 2 s instead of 14 to 90."""
    from tvm_droplet_ms.compat import lazy_intrinsics  # After the environment was set.

    with lazy_intrinsics._quick_parsing:
        yield


@pytest.fixture
def fast_contexts():
    """Contexts import only their target's intrinsics."""
    from tvm_droplet_ms.compat import fast_tune_contexts

    with fast_tune_contexts():
        yield


@pytest.fixture(autouse=True)
def loggers_that_tvm_accepts():
    """Keep TVM's logger propagating; TVM switches that off in its first tuning run.

    pytest adds an unnamed handler to a logger that does not propagate, and TVM's next tuning run
    fails on such a handler. After the test, since pytest adds them before the next one's fixtures.
    """
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    logger.propagate = True
    yield
    logger.propagate = True
