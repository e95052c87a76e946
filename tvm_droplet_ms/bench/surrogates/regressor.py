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
"""The regressor of a surrogate space: from features to a time. Imports no TVM."""

from collections.abc import Sequence

import numpy as np
import xgboost

ROUNDS = 400

PARAMETERS = {
    "objective": "reg:squarederror",
    "eta": 0.05,
    "max_depth": 6,
    "min_child_weight": 4,
    "subsample": 0.8,
    "colsample_bytree": 0.3,
    "tree_method": "hist",
    "nthread": 1,
}
"""Gradient-boosted trees on the logarithm of the time."""


def fit(features: np.ndarray, secs: Sequence[float], seed: int) -> xgboost.Booster:
    """Fit the logarithm of times.

    Parameters
    ----------
    features : np.ndarray
        Of shape ``(modules, features)``.
    secs : Sequence[float]
        Their times in seconds, all finite.
    seed : int
        Of the trees' subsamples.
    """
    data = xgboost.DMatrix(features, label=np.log(secs))
    return xgboost.train({**PARAMETERS, "seed": seed}, data, ROUNDS)


def predict(regressor: xgboost.Booster, features: np.ndarray) -> np.ndarray:
    """The predicted times in seconds, of shape ``(modules,)``."""
    return np.exp(regressor.predict(xgboost.DMatrix(features)).astype(np.float64))
