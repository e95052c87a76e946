# SPDX-License-Identifier: Apache-2.0
"""Kriging with a prior mean, against its definition and on known functions."""

import numpy as np
import pytest

from tvm_droplet_ms.search_strategy.surrogate.gaussian_process import GaussianProcess, Kriging

GENERATOR = np.random.default_rng(0)
POINTS = GENERATOR.uniform(0, 4, (40, 3))
EXPECTED = GENERATOR.normal(size=40)
"""Not a function of the points, so that the process cannot explain it."""


def test_weight_of_accurate_prior_mean():
    values = 0.7 * EXPECTED + 0.01 * np.sin(POINTS[:, 0])
    kriging = Kriging.fit(POINTS, values, EXPECTED)
    assert kriging.weight == pytest.approx(0.7, abs=0.05)


@pytest.mark.parametrize("truth", [0.0, -0.8])
def test_inaccurate_prior_mean_gets_low_weight(truth):
    """With weight 0, predictions equal those of a process without the prior mean."""
    values = np.sin(POINTS[:, 0]) + truth * EXPECTED
    kriging = Kriging.fit(POINTS, values, EXPECTED)
    assert kriging.weight <= 0.15
    if truth < 0:
        assert kriging.weight == 0.0
        where = GENERATOR.uniform(0, 4, (5, 3))
        alone = GaussianProcess.fit(POINTS, values).predict(where)
        informed = kriging.predict(where, GENERATOR.normal(size=5))
        np.testing.assert_allclose(informed.mean, alone.mean)
        np.testing.assert_allclose(informed.deviation, alone.deviation)


def test_prior_mean_determines_predictions_far_from_data():
    values = EXPECTED + 2.0
    kriging = Kriging.fit(POINTS, values, EXPECTED)
    far = np.full((2, 3), 100.0)
    better, worse = kriging.predict(far, np.array([-1.0, 1.0])).mean
    assert worse - better == pytest.approx(2.0 * kriging.weight)
    assert better == pytest.approx(1.0, abs=0.2)


def test_prior_mean_keeps_weight_after_one_measurement():
    """The prior alone determines the weight."""
    kriging = Kriging.fit(POINTS[:1], np.array([-1.0]), np.array([-0.4]))
    assert 0.5 < kriging.weight < 1.5


def test_accurate_prior_mean_improves_predictions():
    """On values that are rough in the points, held out."""
    truth = np.sin(9.0 * POINTS[:, 0]) + np.cos(7.0 * POINTS[:, 1])
    expected = truth + GENERATOR.normal(scale=0.3, size=40)
    kriging = Kriging.fit(POINTS[:20], truth[:20], expected[:20])
    informed = kriging.predict(POINTS[20:], expected[20:]).mean
    alone = GaussianProcess.fit(POINTS[:20], truth[:20]).predict(POINTS[20:]).mean
    assert np.abs(informed - truth[20:]).mean() < 0.6 * np.abs(alone - truth[20:]).mean()
