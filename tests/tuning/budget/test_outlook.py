# SPDX-License-Identifier: Apache-2.0
"""The expected gain of another minute of a whole model."""

import pytest

from tvm_droplet_ms.search_strategy.stopping import forecast
from tvm_droplet_ms.tuning.budget.ending import LARGEST, SECS_PER_TRIAL
from tvm_droplet_ms.tuning.budget.outlook import Outlook, outlook
from tvm_droplet_ms.tuning.result import KernelRow

BATCH_SECS = LARGEST * SECS_PER_TRIAL


def kernel(secs: float, roofline_share: float = 0.9, trials: int = 32) -> KernelRow:
    return KernelRow("k", 1, secs, 1.0, roofline_share, trials, "measured")


def test_a_batch_of_one_kernel_gains_a_quarter_of_the_forecast_of_four():
    assert LARGEST == 8
    found = outlook([kernel(2.0)], 2.0, secs=BATCH_SECS)
    assert found.gain == pytest.approx(forecast(32, 0.1).gain / 4)


def test_a_batch_goes_where_most_seconds_are_expected():
    # The small kernel gains more of itself, the large one more of the model.
    large, small = kernel(10.0, trials=64), kernel(1.0, trials=32)
    found = outlook([large, small], 11.0, secs=BATCH_SECS)
    assert found.gain == pytest.approx(10.0 * forecast(64, 0.1).gain / 4 / 11.0)


def test_trials_that_were_spent_and_a_near_roofline_leave_less():
    fresh, spent = outlook([kernel(1.0, trials=8)], 1.0), outlook([kernel(1.0, trials=800)], 1.0)
    near = outlook([kernel(1.0, roofline_share=0.99, trials=8)], 1.0)
    assert fresh.gain > 10 * spent.gain and fresh.gain > 2 * near.gain
    assert 0 < spent.low < spent.gain < spent.high


def test_more_seconds_gain_more_but_less_each():
    half, whole = outlook([kernel(1.0)], 1.0, 30.0), outlook([kernel(1.0)], 1.0, 60.0)
    assert half.gain < whole.gain < 2 * half.gain


def test_a_model_without_a_kernel_to_tune_gains_nothing():
    assert outlook([], 1.0) == outlook([kernel(0.0)], 0.0) == Outlook(0.0, 0.0, 0.0)


def test_the_time_of_what_cannot_be_tuned_counts():
    assert outlook([kernel(1.0)], 4.0).gain == pytest.approx(outlook([kernel(1.0)], 1.0).gain / 4)


def test_text():
    assert str(Outlook(0.003, 0.0003, 0.0063)) == (
        "another minute is expected to gain 0.3% (80% interval 0.0 to 0.6%)"
    )
