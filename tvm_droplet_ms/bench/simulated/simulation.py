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
"""The time of a program that was never measured: trees over its features, times a fixed error."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...cost_model.archive import replacing
from ...cost_model.boosted_trees import Trees

ROUNDS = 200
"""The number of trees."""

ALIKE = 128
"""Measured programs of similar prediction, one of whose errors a program takes."""

_FOLDS = 4


@dataclass(frozen=True)
class Simulation:
    """Simulates the times of the programs of one workload.

    The trees are smooth where times are not: a search would find their optimum sooner than a real
    one. So each program has an error of its own, the same whenever it is asked for: one that the
    trees made for a program that they had not seen and took to be about as fast. Normal errors of
    the same variance would make far too many programs fast: most large errors are of slow ones.

    Parameters
    ----------
    trees : Trees
        Predict the logarithm of the seconds, less ``shift``.
    shift : float
        The mean of the logarithms of the measured seconds.
    predicted : np.ndarray
        What trees that had not seen them predicted of the measured programs, ascending, of shape
        ``(programs,)``.
    errors : np.ndarray
        The logarithms of their seconds, less ``shift`` and the prediction, of the same shape.
    """

    trees: Trees
    shift: float
    predicted: np.ndarray
    errors: np.ndarray

    @staticmethod
    def fit(features: np.ndarray, secs: np.ndarray) -> "Simulation":
        """Fit the trees to measured programs, and find their errors by cross-validation.

        Parameters
        ----------
        features : np.ndarray
            Of shape ``(programs, features)``.
        secs : np.ndarray
            The seconds of each, of shape ``(programs,)``, finite.
        """
        shift = float(np.log(secs).mean())
        logs = np.log(secs) - shift
        folds = np.random.default_rng(0).permutation(len(secs)) % _FOLDS
        predicted = np.empty(len(secs))
        for fold in range(_FOLDS):
            left_out = folds == fold
            trees = _fit(features[~left_out], logs[~left_out])
            predicted[left_out] = trees.predict(features[left_out])
        order = np.argsort(predicted, kind="stable")
        errors = (logs - predicted)[order]
        return Simulation(_fit(features, logs), shift, predicted[order], errors)

    def secs(self, module: int, features: np.ndarray) -> float:
        """The simulated seconds of a program.

        Parameters
        ----------
        module : int
            Its structural hash, which chooses its error.
        features : np.ndarray
            Its features, of shape ``(features,)``.
        """
        predicted = float(self.trees.predict(features[None])[0])
        place = int(np.searchsorted(self.predicted, predicted))
        first = max(0, min(place - ALIKE // 2, len(self.errors) - ALIKE))
        alike = self.errors[first : first + ALIKE]
        error = alike[np.random.default_rng(module).integers(len(alike))]
        return float(np.exp(self.shift + predicted + error))

    def save(self, path: Path) -> None:
        """Write it to a file, whole or not at all."""
        trees = np.frombuffer(self.trees.to_bytes(), dtype=np.uint8)
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(
                file,
                trees=trees,
                shift=self.shift,
                predicted=self.predicted,
                errors=self.errors,
            )

    @staticmethod
    def load(path: Path) -> "Simulation":
        """Read what ``save`` wrote."""
        with np.load(path) as content:
            trees = Trees.from_bytes(content["trees"].tobytes(), "regression", 0.0, 1.0)
            shift = float(content["shift"])
            return Simulation(trees, shift, content["predicted"], content["errors"])


def _fit(features: np.ndarray, logs: np.ndarray) -> Trees:
    workloads = np.zeros(len(logs), dtype=int)
    return Trees.fit(features, logs, workloads, objective="regression", rounds=ROUNDS, seed=0)
