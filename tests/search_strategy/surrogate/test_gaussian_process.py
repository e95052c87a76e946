# SPDX-License-Identifier: Apache-2.0
"""Gaussian process regression, against its definition."""

import numpy as np
import pytest
from scipy import optimize, stats

from tvm_droplet_ms.search_strategy.surrogate import gaussian_process
from tvm_droplet_ms.search_strategy.surrogate.gaussian_process import (
    GaussianProcess,
    Kernel,
    squared_distances,
)

GENERATOR = np.random.default_rng(0)
POINTS = GENERATOR.uniform(0, 4, (25, 3))
VALUES = np.sin(POINTS[:, 0]) + 0.3 * POINTS[:, 1]


def test_kernel_at_hand_worked_distances():
    kernel = Kernel(length=2.0, variance=3.0, noise=0.1)
    assert kernel(np.array([0.0]))[0] == pytest.approx(3.0)
    # Distance 2, one length: 1 + sqrt(5) + 5/3, times exp(-sqrt(5)).
    assert kernel(np.array([4.0]))[0] == pytest.approx(3.0 * 4.902734644 * 0.106877886, rel=1e-6)


def test_squared_distances_are_those_of_the_rows():
    other = GENERATOR.normal(size=(4, 3))
    expected = [[((row - column) ** 2).sum() for column in other] for row in POINTS]
    np.testing.assert_allclose(squared_distances(POINTS, other), expected, atol=1e-9)


def test_predictions_are_the_conditional_normal():
    kernel = Kernel(length=1.5, variance=2.0, noise=0.05)
    where = GENERATOR.uniform(0, 4, (6, 3))
    prediction = GaussianProcess(kernel, POINTS, VALUES, 0.5, 2.0).predict(where)
    both = np.vstack([POINTS, where])
    covariance = kernel(squared_distances(both, both))
    known = covariance[:25, :25] + (0.05 + 1e-6) * np.eye(25)
    cross = covariance[25:, :25] @ np.linalg.inv(known)
    np.testing.assert_allclose(
        prediction.mean, 0.5 + 2.0 * cross @ ((VALUES - 0.5) / 2.0), rtol=1e-6
    )
    conditional = covariance[25:, 25:] - cross @ covariance[:25, 25:]
    np.testing.assert_allclose(prediction.deviation, 2.0 * np.sqrt(np.diag(conditional)), rtol=1e-5)


def test_likelihood_is_that_of_the_normal_and_the_gradient_its_slope():
    distances = squared_distances(POINTS, POINTS)

    def loss(parameters: np.ndarray) -> float:
        return gaussian_process._negative_log_likelihood(parameters, distances, VALUES)[0]

    for parameters in np.log([[2.0, 1.0, 0.01], [0.5, 3.0, 0.2], [5.0, 0.3, 0.001]]):
        length, variance, noise = np.exp(parameters)
        covariance = Kernel(length, variance, noise)(distances) + (noise + 1e-6) * np.eye(25)
        normal = stats.multivariate_normal(np.zeros(25), covariance)
        constant = 12.5 * np.log(2 * np.pi)
        assert loss(parameters) + constant == pytest.approx(-normal.logpdf(VALUES))
        _, gradient = gaussian_process._negative_log_likelihood(parameters, distances, VALUES)
        slope = optimize.approx_fprime(parameters, loss, 1e-6)
        np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-3)


def test_fit_predicts_a_smooth_function_better_than_its_mean():
    process = GaussianProcess.fit(POINTS, VALUES)
    where = GENERATOR.uniform(0.5, 3.5, (200, 3))
    truth = np.sin(where[:, 0]) + 0.3 * where[:, 1]
    prediction = process.predict(where)
    error = np.abs(prediction.mean - truth)
    assert np.mean(error**2) < 0.05 * truth.var()
    assert np.mean(error < 2 * prediction.deviation) > 0.9


def test_fit_takes_scatter_for_noise():
    same = np.repeat(POINTS[:5], 20, axis=0)
    values = np.repeat([0.0, 1.0, 2.0, 3.0, 4.0], 20) + GENERATOR.normal(0, 0.5, 100)
    process = GaussianProcess.fit(same, values)
    assert np.sqrt(process.kernel.noise) * values.std() == pytest.approx(0.5, rel=0.2)


def test_pending_value_counts_as_measurement():
    kernel = Kernel(length=1.5, variance=2.0, noise=0.05)
    where = GENERATOR.uniform(0, 4, (6, 3))
    prediction = GaussianProcess(kernel, POINTS, VALUES, 0.5, 2.0).predict(where)
    before = prediction.deviation
    prediction.believe(2)
    prediction.believe(4)
    points, values = np.vstack([POINTS, where[[2, 4]]]), [*VALUES, *prediction.mean[[2, 4]]]
    measured = GaussianProcess(kernel, points, np.array(values), 0.5, 2.0).predict(where)
    np.testing.assert_allclose(prediction.mean, measured.mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.deviation, measured.deviation, rtol=1e-6)
    assert np.all(prediction.deviation < before)


def test_equal_values_and_a_single_one_are_fitted():
    for count in (1, 5):
        process = GaussianProcess.fit(POINTS[:count], np.ones(count))
        prediction = process.predict(POINTS)
        np.testing.assert_allclose(prediction.mean, 1.0)
        assert np.all(prediction.deviation > 0) and np.all(np.isfinite(prediction.deviation))


def test_columns_that_are_the_same_everywhere_do_not_count():
    """They would make the length scale that is expected longer."""
    padded = np.hstack([POINTS, np.ones((25, 400))])
    process, other = GaussianProcess.fit(POINTS, VALUES), GaussianProcess.fit(padded, VALUES)
    assert other.kernel.length == pytest.approx(process.kernel.length, rel=1e-6)
