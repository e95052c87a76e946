# SPDX-License-Identifier: Apache-2.0
"""The surrogate of a search: throughput as a function of a point. Imports no TVM."""

from collections.abc import Sequence

import numpy as np

from .gaussian_process import GaussianProcess, Prediction
from .kriging import Kriging


class Surrogate:
    """A Gaussian process of measured values; with prior means, of what these leave unexplained.

    ``process``: the fitted process.
    """

    def __init__(self, process: GaussianProcess | Kriging) -> None:
        self._process = process

    @staticmethod
    def fit(
        points: np.ndarray,
        values: Sequence[float] | np.ndarray,
        prior_means: np.ndarray | None = None,
    ) -> "Surrogate":
        """Fit the surrogate to measurements.

        ``points``: of shape ``(measurements, width)``. ``values``: the value of each.
        ``prior_means``: the value that the prior predicted for each, in the same unit; None without
        a prior.
        """
        measured = np.array(values)
        if prior_means is None:
            return Surrogate(GaussianProcess.fit(points, measured))
        return Surrogate(Kriging.fit(points, measured, prior_means))

    def predict(self, points: np.ndarray, prior_means: np.ndarray | None = None) -> Prediction:
        """Predict the values of points.

        ``points``: of shape ``(points, width)``. ``prior_means``: the value that the prior predicts
        for each; None if it was fitted without.
        """
        if isinstance(self._process, GaussianProcess):
            return self._process.predict(points)
        assert prior_means is not None
        return self._process.predict(points, prior_means)
