# SPDX-License-Identifier: Apache-2.0

"""Adaptation of a pretrained model to a run's measurements."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

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


class Adaptation(Protocol):
    """A model that learns during a run."""

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
