# SPDX-License-Identifier: Apache-2.0
"""A trained network as a model of programs. Imports no TVM."""

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...session.archive import load_arrays
from ..boosted_trees import Objective
from ..throughput import throughput_line

BATCH = 256
"""Maximum number of programs to score at once."""

Model = TypeVar("Model", bound="NetworkModel")


@dataclass(frozen=True)
class NetworkModel(ABC):
    """A trained network, and the line from its scores to relative throughputs.

    - ``parameters``: the parameters, and the means and scales of the inputs, float32. The last
      layer is "output" and "output_bias".
    - ``intercept``, ``slope``: the line from scores to relative throughputs; scores of the
      objective "rank" have no unit.
    """

    parameters: Mapping[str, np.ndarray]
    objective: Objective
    intercept: float = 0.0
    slope: float = 1.0

    @classmethod
    def of_training(
        cls: type[Model],
        parameters: Mapping[str, np.ndarray],
        objective: Objective,
        features: np.ndarray,
        throughput: np.ndarray,
    ) -> Model:
        """Make a model of trained parameters, and fit its line to the training programs."""
        if objective == "regression":
            return cls(parameters, objective)
        scores = cls(parameters, objective).predict(features)
        return cls(parameters, objective, *throughput_line(scores, throughput))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predict the relative throughput of programs, of shape ``(programs,)``, float64."""
        scores = self.embed(features) @ self.parameters["output"] + self.parameters["output_bias"]
        return np.asarray(self.intercept + self.slope * scores[:, 0].astype(float))

    def embed(self, features: np.ndarray) -> np.ndarray:
        """The states before the last layer, of shape ``(programs, width)``, float32."""
        width = self.parameters["output"].shape[0]
        parts = [
            self._embed(features[start : start + BATCH]) for start in range(0, len(features), BATCH)
        ]
        return np.concatenate([np.zeros((0, width), np.float32), *parts])

    @abstractmethod
    def _embed(self, features: np.ndarray) -> np.ndarray:
        """Compute ``embed`` of at least one and at most ``BATCH`` programs."""

    def to_bytes(self) -> bytes:
        """The parameters in NumPy's ``.npz`` format."""
        file = io.BytesIO()
        np.savez(file, **dict[str, Any](self.parameters))
        return file.getvalue()

    @classmethod
    def from_bytes(
        cls: type[Model], content: bytes, objective: Objective, intercept: float, slope: float
    ) -> Model:
        """Read the network that ``to_bytes`` wrote.

        Raises ``ValueError`` if the content is damaged or belongs to another network.
        """
        parameters = load_arrays(io.BytesIO(content))
        found = {name: value.shape for name, value in parameters.items()}
        expected = cls._shapes(found)
        if found != expected:
            raise ValueError(f"its parameters are of shapes {found}, expected {expected}")
        return cls(parameters, objective, intercept, slope)

    @staticmethod
    @abstractmethod
    def _shapes(found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """The expected shapes of all parameters, for the input widths of the found shapes."""
