# SPDX-License-Identifier: Apache-2.0
"""Boosted trees over the vectors of points. Imports no TVM."""

import numpy as np
import xgboost

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
