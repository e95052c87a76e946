# SPDX-License-Identifier: Apache-2.0
"""Predictions for unmeasured points, from a run's measurements and a prior."""

from collections.abc import Container, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import numpy as np

from ..design_spaces import EncodedSpaces
from ..published.decisions import SpacePoint
from ..surrogate.acquisition import expected_improvement
from ..surrogate.gaussian_process import Prediction
from ..surrogate.kriging import Kriging
from .means import LEAST_ASKED, LEAST_MEASURED, PriorMean, TreesMean


class Belief:
    """A surrogate of the measurements.

    Its mean function is the predictions of a prior, or constant without one. From
    ``LEAST_MEASURED`` measurements on, trees fitted to them correct the mean. ``spaces``: the
    points of the design spaces. ``values``: the value of each measured point; smaller is better.
    ``prior_means``: the values that a prior predicts; empty without a prior.
    """

    def __init__(
        self,
        spaces: EncodedSpaces,
        values: Mapping[SpacePoint, float],
        prior_means: Mapping[SpacePoint, float] = MappingProxyType({}),
    ) -> None:
        self._spaces = spaces
        self._measured = list(values)
        vectors = spaces.vectors(self._measured)
        measured = np.array(list(values.values()))
        self._mean: PriorMean | TreesMean | None = None
        if len(prior_means) >= LEAST_ASKED:
            asked = spaces.vectors(list(prior_means))
            self._mean = PriorMean(prior_means, asked, self._measured, vectors, measured)
        elif len(measured) >= LEAST_MEASURED:
            self._mean = TreesMean(vectors, measured)
        means = None if self._mean is None else self._mean.of_measured()
        self._surrogate = Kriging.fit(vectors, measured, means)
        self._expected = self._surrogate.predict(vectors, means).mean

    @property
    def best_value(self) -> float:
        """The smallest expected value of a measured point."""
        return float(self._expected.min())

    def best_of(self, count: int, without: Container[SpacePoint] = ()) -> list[SpacePoint]:
        """The measured points that are expected to be the fastest, the fastest first.

        The order uses expected values, so that a single lucky time does not decide. ``count``: the
        most points. ``without``: points to leave out, such as points that do not replay.
        """
        ranked = (self._measured[index] for index in np.argsort(self._expected))
        return list(islice((point for point in ranked if point not in without), count))

    def predict(self, points: Sequence[SpacePoint]) -> Prediction:
        """Predict the values of points."""
        return self._predict(points, self._spaces.vectors(points))

    def improvements(self, sketch: int, decisions: np.ndarray) -> np.ndarray:
        """The expected improvements of drafted points of one sketch; their decisions are rows."""
        vectors = self._spaces.vectors_of(sketch, decisions)
        prediction = self._predict(None, vectors)
        return expected_improvement(prediction.mean, prediction.deviation, self.best_value)

    def _predict(self, points: Sequence[SpacePoint] | None, vectors: np.ndarray) -> Prediction:
        means = None if self._mean is None else self._mean.of(points, vectors)
        return self._surrogate.predict(vectors, means)
