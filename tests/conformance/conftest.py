# SPDX-License-Identifier: Apache-2.0
"""The parameter of the contract."""

import pytest

from .strategies import STRATEGIES, Case


@pytest.fixture(params=STRATEGIES, ids=lambda case: case.name)
def case(request) -> Case:
    return request.param
