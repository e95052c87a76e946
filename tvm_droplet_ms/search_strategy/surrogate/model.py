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
"""The surrogate of a search: throughput as a function of a point. Imports no TVM."""

from collections.abc import Sequence

import numpy as np

from .gaussian_process import GaussianProcess, Prediction
from .kriging import Kriging


class Surrogate:
    """A Gaussian process of measured values; with prior means, of what these leave unexplained.

    Parameters
    ----------
    process : GaussianProcess | Kriging
        The fitted process.
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

        Parameters
        ----------
        points : np.ndarray
            Of shape ``(measurements, width)``.
        values : Sequence[float] | np.ndarray
            The value of each.
        prior_means : np.ndarray | None
            The value that the prior predicted for each, in the same unit; None without a prior.
        """
        measured = np.array(values)
        if prior_means is None:
            return Surrogate(GaussianProcess.fit(points, measured))
        return Surrogate(Kriging.fit(points, measured, prior_means))

    def predict(self, points: np.ndarray, prior_means: np.ndarray | None = None) -> Prediction:
        """Predict the values of points.

        Parameters
        ----------
        points : np.ndarray
            Of shape ``(points, width)``.
        prior_means : np.ndarray | None
            The value that the prior predicts for each; None if it was fitted without.
        """
        if isinstance(self._process, GaussianProcess):
            return self._process.predict(points)
        assert prior_means is not None
        return self._process.predict(points, prior_means)
