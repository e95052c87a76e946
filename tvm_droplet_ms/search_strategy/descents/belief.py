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
"""What the measurements of a run, and a prior, say of points that were not measured."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..design_spaces import DesignSpaces, SpacePoint
from ..surrogate.acquisition import expected_improvement
from ..surrogate.gaussian_process import Prediction
from ..surrogate.model import Surrogate
from ..surrogate.trees import VectorTrees

LEAST_ASKED = 16
"""Predictions of the prior from which those of other points are drafted."""


class Belief:
    """A surrogate of the measurements around the predictions of a prior.

    The prior's predictions of points that it was not asked about are drafted: trees over vectors
    are fitted to those that it was asked about.

    Parameters
    ----------
    spaces : DesignSpaces
        The points of the design spaces.
    values : Mapping[SpacePoint, float]
        The value of each measured point: the smaller, the better.
    prior_means : Mapping[SpacePoint, float] | None
        The values that the prior predicts; None without a prior.
    """

    def __init__(
        self,
        spaces: DesignSpaces,
        values: Mapping[SpacePoint, float],
        prior_means: Mapping[SpacePoint, float] | None = None,
    ) -> None:
        self._spaces = spaces
        self._prior_means = prior_means
        self._measured = list(values)
        vectors = spaces.vectors(self._measured)
        self._drafted: VectorTrees | None = None
        if prior_means is not None and len(prior_means) >= LEAST_ASKED:
            asked = np.array(list(prior_means.values()))
            self._drafted = VectorTrees.fit(spaces.vectors(list(prior_means)), asked)
        means = self._means(self._measured, vectors)
        self._surrogate = Surrogate.fit(vectors, list(values.values()), means)
        self._expected = self._surrogate.predict(vectors, means).mean

    @property
    def best_value(self) -> float:
        """The smallest value that is expected of a measured point."""
        return float(self._expected.min())

    def best_of(self, count: int) -> list[SpacePoint]:
        """The measured points that are expected to be the fastest, the fastest first.

        A lucky time is not trusted.
        """
        return [self._measured[index] for index in np.argsort(self._expected)[:count]]

    def predict(self, points: Sequence[SpacePoint]) -> Prediction:
        """Predict the values of points."""
        vectors = self._spaces.vectors(points)
        return self._surrogate.predict(vectors, self._means(points, vectors))

    def improvements(self, sketch: int, decisions: np.ndarray) -> np.ndarray:
        """The expected improvements of drafted points of one sketch.

        Parameters
        ----------
        sketch : int
            The index of the sketch.
        decisions : np.ndarray
            Of shape ``(points, integers)``.

        Returns
        -------
        improvements : np.ndarray
            Of shape ``(points,)``.
        """
        vectors = self._spaces.vectors_of(sketch, decisions)
        means = None if self._prior_means is None else self._draft(vectors)
        prediction = self._surrogate.predict(vectors, means)
        return expected_improvement(prediction.mean, prediction.deviation, self.best_value)

    def _draft(self, vectors: np.ndarray) -> np.ndarray:
        """What the prior would predict, as far as a draft can tell."""
        if self._drafted is None:
            return np.zeros(len(vectors))
        return self._drafted.predict(vectors)

    def _means(self, points: Sequence[SpacePoint], vectors: np.ndarray) -> np.ndarray | None:
        """The prior's predictions of points, drafted where it was not asked."""
        if self._prior_means is None:
            return None
        known = [self._prior_means.get(point) for point in points]
        drafted = self._draft(vectors)
        return np.array([own if own is not None else other for own, other in zip(known, drafted)])
