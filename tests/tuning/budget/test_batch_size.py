# SPDX-License-Identifier: Apache-2.0
"""Trials of a batch."""

import math

import pytest

from tvm_droplet_ms.tuning.budget.batch_size import batch_size


@pytest.mark.parametrize(
    ("secs", "kernels", "trials"),
    [
        (math.inf, 1000, 8),
        (0.0, 1, 2),
        (280.0, 50, 8),  # 16 trials of each
        (279.0, 50, 4),
        (140.0, 50, 4),  # 8 trials of each
        (139.0, 50, 2),
        (1.0, 50, 2),
    ],
)
def test_half_of_what_there_is_time_for(secs, kernels, trials):
    assert batch_size(secs, kernels) == trials
