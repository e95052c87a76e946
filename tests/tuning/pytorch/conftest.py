# SPDX-License-Identifier: Apache-2.0
"""The same random numbers for each test of PyTorch's models."""

import pytest


@pytest.fixture(autouse=True)
def _seed():
    pytest.importorskip("torch").manual_seed(0)
