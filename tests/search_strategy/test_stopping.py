# SPDX-License-Identifier: Apache-2.0
"""The forecast of a search's gain, and the rule that ends it."""

import pytest

from tvm_droplet_ms.search_strategy.stopping import (
    GAIN,
    LEAST_GAIN,
    USUAL_ROOM,
    Forecast,
    StopRule,
    forecast,
)


def ends_at(rule: StopRule, best_secs: float) -> int | None:
    """The trials after which a rule ends a search whose best time stays the same."""
    return next((trials for trials in range(1, 2000) if rule.is_over(trials, best_secs)), None)


def test_forecast_by_hand():
    assert forecast(32, USUAL_ROOM).gain == pytest.approx(GAIN)
    # Half of it after twice as many trials, or with a third of the room: 0.34 ** 0.64 is 0.5.
    assert forecast(64).gain == pytest.approx(GAIN / 2, rel=0.01)
    assert forecast(32, 0.034).gain == pytest.approx(GAIN / 2, rel=0.01)


def test_forecast_says_how_much_and_how_surely():
    assert str(Forecast(0.0123, 0.034)) == (
        "32 further trials are expected to gain 1.2% (80%: at most 3.4%)"
    )
    assert forecast(64).gain < forecast(64).high


def test_forecast_of_few_trials_is_a_share():
    assert forecast(1, 0.5) == forecast(8, 0.5)
    assert 0 < forecast(1, 0.5).gain < forecast(1, 0.5).high < 1


def test_room_counts_within_limits():
    """A kernel may beat the roofline, which is an estimate, and may never come near it."""
    assert forecast(32, -0.1) == forecast(32, 0.0)
    assert forecast(32, 0.99) == forecast(32, 0.5)
    assert forecast(32, 0.0).gain < forecast(32, 0.1).gain < forecast(32, 0.5).gain


def test_rule_ends_a_search_when_the_forecast_is_below_its_share():
    ends = {
        stop: ends_at(StopRule(stop, 0.9e-3), 1e-3) for stop in ("auto", LEAST_GAIN, 0.05, None)
    }
    assert ends["auto"] == ends[LEAST_GAIN] is not None
    assert ends[0.05] < ends["auto"]
    assert ends[None] is None


def test_kernel_near_its_roofline_ends_earlier():
    assert ends_at(StopRule("auto", 0.99e-3), 1e-3) < ends_at(StopRule("auto", 0.7e-3), 1e-3)


def test_roofline_of_another_machine_is_not_believed():
    """A kernel of a third of the time that this machine needs was measured elsewhere."""
    unknown = ends_at(StopRule("auto"), 1e-3)
    assert ends_at(StopRule("auto", 3e-3), 1e-3) == unknown
    assert ends_at(StopRule("auto", 1.1e-3), 1e-3) < unknown, "it may be beaten by a tenth"
