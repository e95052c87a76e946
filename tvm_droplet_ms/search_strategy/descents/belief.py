# SPDX-License-Identifier: Apache-2.0
"""The prior mean function, and predictions for unmeasured points from a run's measurements.

A mean function's ``of_measured`` returns out-of-fold means for the measured points, and ``of`` the
means of other points, given the points and their vectors; for drafted points, None and the vectors.
"""

from collections.abc import Container, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import numpy as np
import xgboost

from ..design_spaces import EncodedSpaces
from ..published.decisions import SpacePoint
from ..surrogate.gaussian_process import Kriging, Prediction, expected_improvement

_PARAMETERS = {
    "max_depth": 4,
    "eta": 0.15,
    "subsample": 0.8,
    "colsample_bytree": 0.5,
    "min_child_weight": 2,
    "nthread": 1,
    "verbosity": 0,
    "seed": 0,
}
_ROUNDS = 40
_FOLDS = 8


class VectorTrees:
    """Trees that predict a value from a vector."""

    def __init__(self, booster: xgboost.Booster) -> None:
        self._booster = booster

    @staticmethod
    def fit(vectors: np.ndarray, values: np.ndarray) -> "VectorTrees":
        """Fit the trees to finite values, by squared error; `vectors` are rows."""
        data = xgboost.DMatrix(vectors, label=values, nthread=1)
        parameters = {**_PARAMETERS, "base_score": float(np.mean(values))}
        return VectorTrees(xgboost.train(parameters, data, _ROUNDS))

    def predict(self, vectors: np.ndarray) -> np.ndarray:
        """Predict the values of vectors of shape ``(points, width)``."""
        return np.asarray(self._booster.inplace_predict(vectors), dtype=float)


def out_of_fold(vectors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Predict each value with trees that were not fitted to it.

    Predictions for the training data do not show how far trees can be trusted. There are at least
    two values.
    """
    folds = np.arange(len(values)) % min(_FOLDS, len(values))
    predicted = np.empty(len(values))
    for fold in np.unique(folds):
        left_out = folds == fold
        trees = VectorTrees.fit(vectors[~left_out], values[~left_out])
        predicted[left_out] = trees.predict(vectors[left_out])
    return predicted


LEAST_MEASURED = 16
"""The fewest measurements to which trees are fitted."""

LEAST_ASKED = 16
"""The fewest predictions of the prior to which a draft for other points is fitted."""


class TreesMean:
    """Trees over vectors, fitted to the measurements: they rank better than a process alone."""

    def __init__(self, vectors: np.ndarray, values: np.ndarray) -> None:
        self._measured = out_of_fold(vectors, values)
        self._trees = VectorTrees.fit(vectors, values)

    def of_measured(self) -> np.ndarray:
        """Out-of-fold predictions of the trees."""
        return self._measured

    def of(self, points: Sequence[SpacePoint] | None, vectors: np.ndarray) -> np.ndarray:
        """The predictions of the trees."""
        return self._trees.predict(vectors)


class PriorMean:
    """The predictions of a prior, drafted for points without one, and corrected by measurements.

    From ``LEAST_MEASURED`` measurements on, trees are fitted to the errors of the prior.
    ``predictions``: the prior's predictions by point, at least ``LEAST_ASKED``. ``asked``: the
    vectors of these points.
    """

    def __init__(
        self,
        predictions: Mapping[SpacePoint, float],
        asked: np.ndarray,
        measured: Sequence[SpacePoint],
        vectors: np.ndarray,
        values: np.ndarray,
    ) -> None:
        self._predictions = predictions
        self._draft = VectorTrees.fit(asked, np.array(list(predictions.values())))
        self._correction: VectorTrees | None = None
        self._measured = self._predicted(measured, vectors)
        if len(values) >= LEAST_MEASURED:
            errors = values - self._measured
            self._correction = VectorTrees.fit(vectors, errors)
            self._measured = self._measured + out_of_fold(vectors, errors)

    def of_measured(self) -> np.ndarray:
        """Out-of-fold predictions for the measured points."""
        return self._measured

    def of(self, points: Sequence[SpacePoint] | None, vectors: np.ndarray) -> np.ndarray:
        """The corrected predictions of the prior, or of the draft for points without one."""
        predicted = self._predicted(points, vectors)
        if self._correction is not None:
            predicted = predicted + self._correction.predict(vectors)
        return predicted

    def _predicted(self, points: Sequence[SpacePoint] | None, vectors: np.ndarray) -> np.ndarray:
        drafted = self._draft.predict(vectors)
        if points is None:
            return drafted
        pairs = zip(points, drafted.tolist(), strict=True)
        return np.array([self._predictions.get(point, value) for point, value in pairs])


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
