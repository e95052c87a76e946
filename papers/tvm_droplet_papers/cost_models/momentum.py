# SPDX-License-Identifier: Apache-2.0

"""MoA, Pruner's momentum adaptation: a network that is trained further during a run.

After "Pruner: A Draft-then-Verify Exploration Mechanism to Accelerate Tensor Program Tuning" (Liu
et al., ASPLOS 2025). Each training starts the target network from the source and trains it on the
measurements of the run. The target network predicts. The source then moves toward the target:
source <- m * source + (1 - m) * target. Imports no TVM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tvm_droplet_ms.cost_model.kinds import AdaptationName, MeasuredTask
from tvm_droplet_ms.cost_model.throughput import relative_throughput

from .pattern_aware import PatternAware

MOMENTUM = 0.99
"""The paper's m."""

STEPS = 24
"""Steps of a training, which takes half a second on one core."""

RATE = 1e-3
"""Learning rate of a training."""


class AdaptedNetwork:
    """A network that is fine-tuned from a source, and the source, which follows the network.

    ``source``: a network that was trained on other workloads. ``momentum``: the weight of the old
    source, from 0 to 1; with 1 the source never moves, which is plain fine-tuning. ``seed``: seed
    of the order of the programs and of dropout. Raises ``ImportError`` if JAX is not installed.
    """

    def __init__(self, source: PatternAware, *, momentum: float, seed: int) -> None:
        # Import now, so that a missing JAX raises before any program is measured.
        training = source.trainer()
        self._fine_tune = partial(training.fine_tune, training.RECIPES["PatternAware"])
        self._programs = training.Programs
        self._momentum = momentum
        self._seed = seed
        self.source = source
        self.target = source

    @property
    def is_trained(self) -> bool:
        """Always True, because the source is trained."""
        return True

    def learn(self, tasks: Sequence[MeasuredTask]) -> None:
        """Retrain the target from the source, then move the source; see ``Adaptation.learn``."""
        throughput = [relative_throughput(np.array(task.secs)) for task in tasks]
        programs = self._programs(
            np.concatenate([np.array(task.features) for task in tasks]),
            np.concatenate(throughput),
            np.repeat(np.arange(len(tasks)), [len(task.secs) for task in tasks]),
        )
        parameters = self._fine_tune(
            self.source.parameters,
            programs,
            objective=self.source.objective,
            seed=self._seed,
            steps=STEPS,
            rate=RATE,
        )
        self.target = replace(self.source, parameters=parameters)
        moved = moved_towards(self.source.parameters, parameters, self._momentum)
        self.source = replace(self.source, parameters=moved)

    def predict(self, features: np.ndarray, task: MeasuredTask) -> np.ndarray:
        """Predict with the target network for any task; see ``Adaptation.predict``."""
        return self.target.predict(features)


def adapted_network(source: PatternAware, adaptation: AdaptationName, seed: int) -> AdaptedNetwork:
    """The network of an adaptation: "momentum", or "fine-tune", whose source never moves."""
    momentum = MOMENTUM if adaptation == "momentum" else 1.0
    return AdaptedNetwork(source, momentum=momentum, seed=seed)


def moved_towards(
    source: Mapping[str, np.ndarray], target: Mapping[str, np.ndarray], momentum: float
) -> dict[str, np.ndarray]:
    """The parameters m * source + (1 - m) * target.

    ``source``, ``target``: parameters of the same names and shapes. ``momentum``: the weight of the
    source, m. Returns float32, like the source.
    """
    return {
        name: np.asarray(momentum * value + (1.0 - momentum) * target[name], dtype=value.dtype)
        for name, value in source.items()
    }
