# SPDX-License-Identifier: Apache-2.0
"""Regression kriging: a Gaussian process around a prior mean. Imports no TVM."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from .gaussian_process import GaussianProcess, Prediction, squared_distances

_PRIOR_WEIGHT, _WEIGHT_SPREAD = 1.0, 1.0
"""The normal prior of the weight: the prior mean is believed until measurements differ."""

_SHIFT_SPREAD = 100.0
_ROUNDS = 2
_JITTER = 1e-6


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
