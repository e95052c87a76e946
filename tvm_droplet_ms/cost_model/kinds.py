# SPDX-License-Identifier: Apache-2.0
"""What a kind of network offers, and how it learns during a run.

The networks themselves are in ``tvm_droplet_papers.cost_models``, which is installed apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, Protocol

import numpy as np

from .boosted_trees import Objective, Trees
from .features.program_features import Extractor, ProgramFeatures
from .model_file import ModelKind

AdaptationName = Literal["residual", "fine-tune", "momentum"]

ADAPTATIONS: tuple[AdaptationName, ...] = ("residual", "fine-tune", "momentum")
"""Names of adaptations. "residual": trees learn the residual of the model, which stays unchanged.
"fine-tune": the network is trained further on the run's measurements. "momentum": like "fine-tune",
but the source that each training begins from moves a little toward the result. The default is
"residual": over a sequence of ten spaces, momentum gained 0.010 of the pairs on the last five, no
more than another seed does (2026-11-24, commit 62a88a6)."""


@dataclass
class MeasuredTask:
    """Measured programs of one task. ``secs``: their times in seconds; infinity for a failure."""

    features: list[np.ndarray] = field(default_factory=list)
    secs: list[float] = field(default_factory=list)
    _known: set[tuple[int, tuple[float, ...]]] = field(default_factory=set)

    def is_new(self, module: int, secs: tuple[float, ...]) -> bool:
        """Record a module's hash and its times; True if they were not recorded before."""
        before = len(self._known)
        self._known.add((module, secs))
        return len(self._known) > before


class Network(Protocol):
    """A trained network; see ``Trees`` for what they share."""

    @property
    def kind(self) -> ModelKind: ...
    @property
    def objective(self) -> Objective: ...
    @property
    def intercept(self) -> float: ...
    @property
    def slope(self) -> float: ...

    def predict(self, features: np.ndarray) -> np.ndarray: ...

    def embed(self, features: np.ndarray) -> np.ndarray:
        """The states before the last layer, of shape ``(programs, width)``, float32."""

    def to_bytes(self) -> bytes: ...

    @classmethod
    def fit(
        cls,
        features: np.ndarray,
        throughput: np.ndarray,
        workloads: np.ndarray,
        *,
        objective: Objective,
        seed: int,
    ) -> "Network": ...

    @classmethod
    def from_bytes(
        cls, content: bytes, objective: Objective, intercept: float, slope: float
    ) -> "Network": ...

    @staticmethod
    def trainer() -> ModuleType:
        """Import what ``fit`` needs. Raises ``ImportError`` if that is not installed."""


class Adaptation(Protocol):
    """A model that learns during a run."""

    @property
    def source(self) -> Trees | Network | None:
        """The model of other workloads, as it is now; None without one."""

    @property
    def is_trained(self) -> bool:
        """True if the model has learned anything, from other workloads or from this run."""

    def learn(self, tasks: Sequence[MeasuredTask]) -> None:
        """Learn from all measurements of the run, at least one."""

    def predict(self, features: np.ndarray, task: MeasuredTask) -> np.ndarray:
        """Predict the relative throughput of programs.

        ``features``: features of programs of a task, of shape ``(programs, width)``. ``task``: the
        measurements of the task, which may be empty. Returns an array of shape ``(programs,)``,
        float64.
        """


@dataclass(frozen=True)
class NetworkKind:
    """A kind of network.

    - ``extractor``: makes the extractor of its features.
    - ``network``: trains and reads its models.
    - ``adapt``: makes the adaptation of a model, other than "residual", with a seed; None if the
      kind has none.
    """

    extractor: Callable[[], Extractor]
    network: type[Network]
    adapt: Callable[[Any, AdaptationName, int], Adaptation] | None = None


def network_kind(kind: ModelKind) -> NetworkKind:
    """Find a kind of network.

    Raises ``ValueError`` if the package of the networks is not installed.
    """
    try:
        from tvm_droplet_papers.cost_models import NETWORK_KINDS
    except ModuleNotFoundError as error:
        raise ValueError(
            f"a model of kind {kind!r} needs the package tvm_droplet_papers: install it by `pip "
            "install ./papers` in a clone of this project, or use a model of kind 'trees'"
        ) from error
    return NETWORK_KINDS[kind]


def extractor_of(kind: ModelKind) -> Extractor:
    """Make the feature extractor of a kind of model; see ``network_kind`` for the errors."""
    return ProgramFeatures() if kind == "trees" else network_kind(kind).extractor()
