# SPDX-License-Identifier: Apache-2.0
"""Mean functions of the Gaussian process.

``of_measured`` returns out-of-fold means for the measured points. ``of`` returns the means of other
points, given the points and their vectors; for drafted points, it gets None and the vectors.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..published.decisions import SpacePoint
from ..surrogate.trees import VectorTrees, out_of_fold

LEAST_MEASURED = 16
"""The fewest measurements to which trees are fitted. Among 990 measured random schedules, the
search then reaches 0.974 of the best in 64 trials, and 0.965 without trees (four whole spaces, 24
seeds, 2026-11-23, commit 745b08b)."""

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
