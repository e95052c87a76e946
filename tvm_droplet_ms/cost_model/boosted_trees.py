# SPDX-License-Identifier: Apache-2.0
"""Gradient-boosted trees that score programs. Imports no TVM."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xgboost

from .throughput import throughput_line

Objective = Literal["rank", "regression"]

OBJECTIVES: tuple[Objective, ...] = ("rank", "regression")
"""Training objectives: "rank", the logistic loss of each pair of programs of one workload, as in
"Learning to Optimize Tensor Programs" (Chen et al., 2018); "regression", the squared error of the
relative throughput."""

_PARAMETERS: dict[str, Any] = {
    "eta": 0.1,
    "max_depth": 6,
    "min_child_weight": 4,
    "subsample": 0.8,
    "colsample_bytree": 0.3,
    "tree_method": "hist",
    "base_score": 0.0,
    "nthread": 1,
}

_OBJECTIVE_PARAMETERS: dict[Objective, dict[str, Any]] = {
    "rank": {
        "objective": "rank:pairwise",
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": 8,
        "lambdarank_normalization": False,
    },
    "regression": {"objective": "reg:squarederror"},
}


@dataclass(frozen=True)
class Trees:
    """Boosted trees, and the line from their scores to relative throughputs.

    ``intercept``, ``slope``: the line from scores to relative throughputs; scores of the objective
    "rank" have no unit.
    """

    booster: xgboost.Booster
    objective: Objective
    intercept: float = 0.0
    slope: float = 1.0

    @property
    def kind(self) -> Literal["trees"]:
        """The kind of the model."""
        return "trees"

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

        - ``features``: array of shape ``(programs, features)``.
        - ``throughput``: ``relative_throughput`` of each workload, of shape ``(programs,)``.
        - ``workloads``: the workload index of each program, ascending, of the same shape: "rank"
          compares only programs of one workload.
        - ``objective``: "rank" or "regression".
        - ``rounds``: the number of trees.
        - ``seed``: seed of the trees' subsamples.
        - ``weights``: the weight of each program in "regression", of the same shape; None for equal
          weights.
        """
        data = xgboost.DMatrix(features, label=throughput, nthread=1)
        if objective == "rank":
            data.set_info(qid=workloads)
        elif weights is not None:
            data.set_info(weight=weights)
        parameters = _PARAMETERS | _OBJECTIVE_PARAMETERS[objective] | {"seed": seed}
        booster = xgboost.train(parameters, data, rounds)
        if objective == "regression":
            return Trees(booster, objective)
        scores = Trees(booster, objective).predict(features)
        return Trees(booster, objective, *throughput_line(scores, throughput))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predict the relative throughput of programs, of shape ``(programs,)``, float64."""
        scores = self.booster.predict(xgboost.DMatrix(features, nthread=1), output_margin=True)
        return np.asarray(self.intercept + self.slope * scores, dtype=np.float64)

    def to_bytes(self) -> bytes:
        """The trees in xgboost's UBJSON format."""
        return bytes(self.booster.save_raw("ubj"))

    @staticmethod
    def from_bytes(content: bytes, objective: Objective, intercept: float, slope: float) -> "Trees":
        """Read the trees that ``to_bytes`` wrote; ``ValueError`` for any other content."""
        # xgboost ends the process on an empty buffer.
        if not content.startswith(b"{"):
            raise ValueError(f"its trees begin with {content[:8]!r}, expected an UBJSON object")
        booster = xgboost.Booster({"nthread": 1})
        booster.load_model(bytearray(content))
        return Trees(booster, objective, intercept, slope)
