# SPDX-License-Identifier: Apache-2.0
"""Gaussian process regression, also around a prior mean (kriging), and what to measure by it.

Imports no TVM.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from scipy import linalg, optimize, special

_VARIANCE_SPREAD = 1.0
_LENGTH_SPREAD = 1.0
_NOISE, _NOISE_SPREAD = 1e-2, 2.0
"""Log-normal priors: the variance is near 1, the length scale near the square root of the number of
dimensions in which the points differ ("Vanilla Bayesian Optimization Performs Great in High
Dimensions", arXiv 2402.02229), and the noise near a hundredth of the variance."""

_JITTER = 1e-6
_STEPS = 30
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class Kernel:
    """The Matern kernel with smoothness 5/2, and noise.

    ``length``: the length scale. ``variance``: the variance of the values. ``noise``: the variance
    of the measurement noise.
    """

    length: float
    variance: float
    noise: float

    def __call__(self, squared_distances: np.ndarray) -> np.ndarray:
        """The covariances at squared distances, without noise."""
        scaled = np.sqrt(5.0 * squared_distances) / self.length
        return self.variance * (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)


class GaussianProcess:
    """A Gaussian process fitted to measurements (Rasmussen and Williams, 2006, chapter 2).

    ``kernel``: the covariance of standardized values. ``points``: the measured points, of shape
    ``(measurements, dimensions)``. ``values``: their finite values. ``shift``, ``scale``: the mean
    and the standard deviation of the values.
    """

    def __init__(
        self, kernel: Kernel, points: np.ndarray, values: np.ndarray, shift: float, scale: float
    ) -> None:
        self.kernel = kernel
        self._points = points
        self._shift = shift
        self.scale = scale
        covariance = kernel(squared_distances(points, points))
        covariance[np.diag_indices_from(covariance)] += kernel.noise + _JITTER
        self._factor = linalg.cholesky(covariance, lower=True)
        standardized = (values - shift) / scale
        self._weights = linalg.cho_solve((self._factor, True), standardized)

    @staticmethod
    def fit(points: np.ndarray, values: np.ndarray) -> "GaussianProcess":
        """Fit the kernel to measurements: maximize the posterior probability of its parameters."""
        shift, scale = float(values.mean()), float(values.std()) or 1.0
        standardized = (values - shift) / scale
        distances = squared_distances(points, points)
        dimensions = max(1, int(np.count_nonzero(np.ptp(points, axis=0))))
        start = np.log([math.sqrt(dimensions), 1.0, _NOISE])
        spreads = np.array([_LENGTH_SPREAD, _VARIANCE_SPREAD, _NOISE_SPREAD])

        def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = _negative_log_likelihood(parameters, distances, standardized)
            deviation = (parameters - start) / spreads
            return value + 0.5 * deviation @ deviation, gradient + deviation / spreads

        bounds = [
            (middle - 5 * spread, middle + 5 * spread) for middle, spread in zip(start, spreads)
        ]
        found = optimize.minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS}
        )
        length, variance, noise = np.exp(found.x)
        kernel = Kernel(float(length), float(variance), float(noise))
        return GaussianProcess(kernel, points, values, shift, scale)

    def predict(self, points: np.ndarray) -> "Prediction":
        """Predict the values at points, of shape ``(points, dimensions)``."""
        covariance = self.kernel(squared_distances(points, self._points))
        explained = linalg.solve_triangular(self._factor, covariance.T, lower=True)
        mean = covariance @ self._weights * self.scale + self._shift
        return Prediction(self.kernel, points, mean, explained, self.scale)


class Prediction:
    """The predicted values of points.

    ``mean``: the posterior means, of shape ``(points,)``. ``explained``: the part of each point's
    standard deviation that each measurement explains, of shape ``(measurements, points)``.
    """

    def __init__(
        self,
        kernel: Kernel,
        points: np.ndarray,
        mean: np.ndarray,
        explained: np.ndarray,
        scale: float,
    ) -> None:
        self.mean = mean
        self._kernel = kernel
        self._points = points
        self._explained = explained
        self._scale = scale
        self._variance = kernel.variance - np.einsum("ij,ij->j", explained, explained)

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviations of the values, positive, of shape ``(points,)``."""
        return np.asarray(np.sqrt(np.maximum(self._variance, _LEAST_VARIANCE)) * self._scale)

    def believe(self, index: int) -> None:
        """Add a point as if it had been measured with its predicted value.

        Only the deviations change: one step of a Cholesky factorization.
        """
        to_all = self._kernel(squared_distances(self._points[index : index + 1], self._points))[0]
        conditional = to_all - self._explained[:, index] @ self._explained
        noisy = max(self._variance[index], _LEAST_VARIANCE) + self._kernel.noise + _JITTER
        explained = conditional / np.sqrt(noisy)
        self._explained = np.vstack([self._explained, explained])
        self._variance = self._variance - explained**2


def squared_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The squared Euclidean distances between the rows of two arrays."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :]
    return np.asarray(np.maximum(squares - 2.0 * one @ other.T, 0.0))


def _negative_log_likelihood(
    parameters: np.ndarray, distances: np.ndarray, values: np.ndarray
) -> tuple[float, np.ndarray]:
    """The negative log likelihood and its gradient in the logarithms of the three parameters.

    Rasmussen and Williams (2006), section 5.4.
    """
    length, variance, noise = np.exp(parameters)
    kernel = Kernel(length, variance, noise)
    covariance = kernel(distances)
    noisy = covariance + (noise + _JITTER) * np.eye(len(values))
    factor = linalg.cholesky(noisy, lower=True)
    weights = linalg.cho_solve((factor, True), values)
    value = 0.5 * values @ weights + np.log(np.diag(factor)).sum()
    inverse = linalg.cho_solve((factor, True), np.eye(len(values)))
    outer = 0.5 * (inverse - np.outer(weights, weights))
    scaled = np.sqrt(5.0 * distances) / length
    by_length = variance * scaled**2 * (1.0 + scaled) * np.exp(-scaled) / 3.0
    gradient = [(outer * by_length).sum(), (outer * covariance).sum(), noise * np.trace(outer)]
    return float(value), np.array(gradient)


_PRIOR_WEIGHT, _WEIGHT_SPREAD = 1.0, 1.0
"""The normal prior of the weight: the prior mean is believed until measurements differ."""

_SHIFT_SPREAD = 100.0
_ROUNDS = 2


@dataclass(frozen=True)
class Kriging:
    """A Gaussian process whose mean is a multiple of a prior mean.

    Rasmussen and Williams (2006), section 2.7, with one basis function, the prior mean, and a
    normal prior of its weight. Where measurements do not follow the prior mean, the weight is
    small, and the process explains them by itself. ``process``: the process of the residuals.
    ``weight``: the weight of the prior mean. It is never negative: a prior that measurements
    contradict is ignored. Without a prior mean, only the process remains.
    """

    process: GaussianProcess
    weight: float

    @staticmethod
    def fit(points: np.ndarray, values: np.ndarray, prior_mean: np.ndarray | None) -> "Kriging":
        """Fit the weight and the process in turns; see ``GaussianProcess``.

        ``prior_mean``: the prior mean of each value, in the same unit; None for none.
        """
        if prior_mean is None:
            return Kriging(GaussianProcess.fit(points, values), 0.0)
        weight = _PRIOR_WEIGHT
        for _ in range(_ROUNDS):
            process = GaussianProcess.fit(points, values - weight * prior_mean)
            weight = max(0.0, _generalized_least_squares(process, points, values, prior_mean))
        return Kriging(GaussianProcess.fit(points, values - weight * prior_mean), weight)

    def predict(self, points: np.ndarray, prior_mean: np.ndarray | None) -> Prediction:
        """Predict the values at points, given their prior means; None if fitted without them."""
        assert prior_mean is not None or self.weight == 0.0
        prediction = self.process.predict(points)
        if prior_mean is not None:
            prediction.mean = prediction.mean + self.weight * prior_mean
        return prediction


def _generalized_least_squares(
    process: GaussianProcess, points: np.ndarray, values: np.ndarray, prior_mean: np.ndarray
) -> float:
    """The posterior mean of the weight, given the kernel of the process."""
    covariance = process.kernel(squared_distances(points, points))
    covariance[np.diag_indices_from(covariance)] += process.kernel.noise + _JITTER
    basis = np.stack([np.ones(len(values)), prior_mean], axis=1)
    weighted = linalg.solve(process.scale**2 * covariance, basis, assume_a="pos")
    precision = np.array([_SHIFT_SPREAD, _WEIGHT_SPREAD]) ** -2.0
    mean = np.array([0.0, _PRIOR_WEIGHT])
    found = linalg.solve(
        basis.T @ weighted + np.diag(precision), weighted.T @ values + precision * mean
    )
    return float(found[1])


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """The expected decrease below the smallest value so far (Jones et al., 1998, equation 15).

    ``mean``, ``deviation``: posterior means and positive standard deviations.
    """
    normal = (best - mean) / deviation
    density = np.exp(-0.5 * normal**2) / np.sqrt(2.0 * np.pi)
    return np.asarray(deviation * (normal * special.ndtr(normal) + density))


def by_expected_improvement(prediction: Prediction, best: float) -> Generator[int, bool, None]:
    """Choose points one by one, each as if the earlier points had come out as predicted.

    This is the Kriging believer of Ginsbourger et al. ("Kriging Is Well-Suited to Parallelize
    Optimization", 2010), which keeps a batch from crowding around one promising point.
    ``prediction``: the prediction for the points to choose from. ``best``: the smallest value so
    far. Yields the index of a point, and is sent whether the point will be measured. If so, it is
    added to the prediction.
    """
    left = np.ones(len(prediction.mean), dtype=bool)
    while left.any():
        improvement = expected_improvement(prediction.mean, prediction.deviation, best)
        improvement = np.where(left, improvement, -1.0)
        chosen = int(np.argmax(improvement))
        left[chosen] = False
        if (yield chosen):
            best = min(best, float(prediction.mean[chosen]))
            prediction.believe(chosen)
