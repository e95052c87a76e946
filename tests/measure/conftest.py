# SPDX-License-Identifier: Apache-2.0
"""Fixtures for builders, runners and pools."""

import subprocess

import pytest
from measuring import Surroundings

from tvm_droplet_ms.measure.pool import program


@pytest.fixture(scope="module")
def cold_servers():
    """Start servers as users do, with the environment that marks them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "subprocess", subprocess)
        yield


@pytest.fixture
def surroundings(tmp_path, monkeypatch, cold_servers):
    """The processes and files of a test; none may be left."""
    surroundings = Surroundings(tmp_path, monkeypatch)
    yield surroundings
    surroundings.assert_nothing_is_left()
