# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Regression kriging: a Gaussian process around what is expected. Imports no TVM."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from .gaussian_process import GaussianProcess, Prediction, squared_distances

_EXPECTED_WEIGHT, _WEIGHT_SPREAD = 1.0, 1.0
"""The prior of the weight: what is expected is taken at its word, until measurements differ."""

_SHIFT_SPREAD = 100.0
_ROUNDS = 2
_JITTER = 1e-6


@dataclass(frozen=True)
class Kriging:
    """A process of measurements around a multiple of what was expected of them.

    That is Rasmussen and Williams (2006), section 2.7, with one basis function, the expectation,
    and a normal prior of its weight. Where measurements do not follow what was expected of them,
    the weight is small, and the process explains them by itself.

    Parameters
    ----------
    process : GaussianProcess
        Of what the expectation leaves to be explained.
    weight : float
        By how much a value rises with what is expected of it. Never negative: where measurements
        contradict the expectation, it is not believed at all.
    """

    process: GaussianProcess
    weight: float

    @staticmethod
    def fit(points: np.ndarray, values: np.ndarray, expected: np.ndarray) -> "Kriging":
        """Fit the weight and the process in turns.

        Parameters
        ----------
        points : np.ndarray
            Of shape ``(measurements, dimensions)``.
        values : np.ndarray
            Of shape ``(measurements,)``, finite.
        expected : np.ndarray
            What was expected of them before, in the values' unit, of the same shape.
        """
        weight = _EXPECTED_WEIGHT
        for _ in range(_ROUNDS):
            process = GaussianProcess.fit(points, values - weight * expected)
            weight = max(0.0, _generalised_least_squares(process, points, values, expected))
        return Kriging(GaussianProcess.fit(points, values - weight * expected), weight)

    def predict(self, points: np.ndarray, expected: np.ndarray) -> Prediction:
        """What the measurements say of points, given what is expected of them."""
        prediction = self.process.predict(points)
        prediction.mean = prediction.mean + self.weight * expected
        return prediction


def _generalised_least_squares(
    process: GaussianProcess, points: np.ndarray, values: np.ndarray, expected: np.ndarray
) -> float:
    """The mean of the weight's posterior, the kernel of the process given."""
    covariance = process.kernel(squared_distances(points, points))
    covariance[np.diag_indices_from(covariance)] += process.kernel.noise + _JITTER
    basis = np.stack([np.ones(len(values)), expected], axis=1)
    weighted = linalg.solve(process.scale**2 * covariance, basis, assume_a="pos")
    precision = np.array([_SHIFT_SPREAD, _WEIGHT_SPREAD]) ** -2.0
    mean = np.array([0.0, _EXPECTED_WEIGHT])
    found = linalg.solve(
        basis.T @ weighted + np.diag(precision), weighted.T @ values + precision * mean
    )
    return float(found[1])
