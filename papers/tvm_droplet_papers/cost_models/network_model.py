# SPDX-License-Identifier: Apache-2.0
"""A trained network as a model of programs. Scoring needs NumPy alone. Imports no TVM."""

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from tvm_droplet_ms.cost_model.boosted_trees import Objective
from tvm_droplet_ms.cost_model.model_file import ModelKind
from tvm_droplet_ms.cost_model.throughput import throughput_line
from tvm_droplet_ms.session.archive import load_arrays

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

    @property
    @abstractmethod
    def kind(self) -> ModelKind:
        """The kind of the model."""

    @staticmethod
    @abstractmethod
    def trainer() -> ModuleType:
        """The module ``training``; ``ImportError`` if JAX is not installed."""

    @classmethod
    def fit(
        cls: type[Model],
        features: np.ndarray,
        throughput: np.ndarray,
        workloads: np.ndarray,
        *,
        objective: Objective,
        seed: int,
    ) -> Model:
        """Train a network on the programs of some workloads, each of equal weight.

        - ``features``: features of the kind's extractor, of shape ``(programs, width)``.
        - ``throughput``: ``relative_throughput`` of each workload, of shape ``(programs,)``.
        - ``workloads``: the workload index of each program, ascending, of the same shape.
        - ``objective``: "rank", which compares the programs of one workload, or "regression".
        - ``seed``: seed of the first parameters, the order of the programs and dropout.

        Raises ``ImportError`` if JAX is not installed. Raises ``ValueError`` if the features are
        from another extractor.
        """
        cls._check(features)
        training = cls.trainer()
        programs = training.Programs(features, throughput, workloads)
        parameters = training.train(training.RECIPES[cls.__name__], programs, objective, seed)
        if objective == "regression":
            return cls(parameters, objective)
        scores = cls(parameters, objective).predict(features)
        return cls(parameters, objective, *throughput_line(scores, throughput))

    @staticmethod
    @abstractmethod
    def _check(features: np.ndarray) -> None:
        """Raise ``ValueError`` if features are from another extractor."""

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


def load_trainer(network: str, extra: str) -> ModuleType:
    """Import ``training``, which needs JAX; ``ImportError`` names the network and the extra."""
    try:
        return import_module(f"{__package__}.training")
    except ImportError as error:
        raise ImportError(
            f"training a {network} needs JAX, which is not installed: pip install "
            f"'./papers[{extra}]' in a clone of this project"
        ) from error
