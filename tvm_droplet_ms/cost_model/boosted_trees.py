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
"""Gradient-boosted trees that score programs. Imports no TVM."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xgboost

Objective = Literal["rank", "regression"]

OBJECTIVES: tuple[Objective, ...] = ("rank", "regression")
"""The logistic loss of each pair of programs of one workload, as in "Learning to Optimize Tensor
Programs" (Chen et al., 2018), or the squared error of the relative throughput."""

_COMMON: dict[str, Any] = {
    "eta": 0.1,
    "max_depth": 6,
    "min_child_weight": 4,
    "subsample": 0.8,
    "colsample_bytree": 0.3,
    "tree_method": "hist",
    "base_score": 0.0,
    "nthread": 1,
}

_OF_OBJECTIVE: dict[Objective, dict[str, Any]] = {
    "rank": {
        "objective": "rank:pairwise",
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": 8,
        "lambdarank_normalization": False,
    },
    "regression": {"objective": "reg:squarederror"},
}


def relative_throughput(secs: np.ndarray) -> np.ndarray:
    """What a model of one workload learns: the best time over each time, 0 for a failure.

    Parameters
    ----------
    secs : np.ndarray
        Times in seconds, of shape ``(programs,)``; infinity, NaN or nothing positive is a failure.

    Returns
    -------
    throughput : np.ndarray
        From 0 to 1, of the same shape; all 0 where everything failed.
    """
    valid = np.isfinite(secs) & (secs > 0)
    throughput = np.zeros(len(secs))
    if valid.any():
        throughput[valid] = secs[valid].min() / secs[valid]
    return throughput


@dataclass(frozen=True)
class Trees:
    """Boosted trees, and what their scores mean.

    Parameters
    ----------
    booster : xgboost.Booster
        The trees.
    objective : Objective
        What they were fitted for.
    intercept, slope : float
        The line from scores to relative throughputs. Scores of the objective "rank" have no unit
        of their own.
    """

    booster: xgboost.Booster
    objective: Objective
    intercept: float = 0.0
    slope: float = 1.0

    @staticmethod
    def fit(
        features: np.ndarray,
        throughput: np.ndarray,
        workloads: np.ndarray,
        *,
        objective: Objective,
        rounds: int,
        seed: int,
        weights: np.ndarray | None = None,
    ) -> "Trees":
        """Fit trees to the programs of one workload or several.

        Parameters
        ----------
        features : np.ndarray
            Of shape ``(programs, features)``.
        throughput : np.ndarray
            ``relative_throughput`` of each workload, of shape ``(programs,)``.
        workloads : np.ndarray
            Which workload each program is of, as integers in ascending order, of the same shape:
            "rank" compares only programs of one workload.
        objective : Objective
            "rank" or "regression".
        rounds : int
            The number of trees.
        seed : int
            Of the trees' subsamples.
        weights : np.ndarray | None
            How much each program counts in "regression", of the same shape; None for all alike.
        """
        data = xgboost.DMatrix(features, label=throughput)
        if objective == "rank":
            data.set_info(qid=workloads)
        elif weights is not None:
            data.set_info(weight=weights)
        parameters = _COMMON | _OF_OBJECTIVE[objective] | {"seed": seed}
        booster = xgboost.train(parameters, data, rounds)
        if objective == "regression":
            return Trees(booster, objective)
        scores = Trees(booster, objective).predict(features)
        slope, intercept = np.polyfit(scores, throughput, 1) if np.ptp(scores) > 0 else (1.0, 0.0)
        return Trees(booster, objective, float(intercept), max(float(slope), 0.0))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The relative throughputs of programs, of shape ``(programs,)``, float64."""
        scores = self.booster.predict(xgboost.DMatrix(features), output_margin=True)
        return np.asarray(self.intercept + self.slope * scores, dtype=np.float64)

    def to_bytes(self) -> bytes:
        """The trees, as xgboost's UBJSON."""
        return bytes(self.booster.save_raw("ubj"))

    @staticmethod
    def from_bytes(content: bytes, objective: Objective, intercept: float, slope: float) -> "Trees":
        """The trees of ``to_bytes``."""
        booster = xgboost.Booster({"nthread": 1})
        booster.load_model(bytearray(content))
        return Trees(booster, objective, intercept, slope)
