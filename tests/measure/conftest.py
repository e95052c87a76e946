# SPDX-License-Identifier: Apache-2.0
"""Fixtures for builders, runners and pools."""

import pytest
from measuring import Surroundings


@pytest.fixture
def surroundings(tmp_path, monkeypatch, warm_servers):
    """The processes and files of a test; none may be left."""
    surroundings = Surroundings(tmp_path, monkeypatch, warm_servers)
    yield surroundings
    surroundings.assert_nothing_is_left()
