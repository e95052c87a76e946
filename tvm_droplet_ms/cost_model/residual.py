# SPDX-License-Identifier: Apache-2.0

"""Trees that learn the residual of a pretrained model."""

from collections.abc import Sequence

import numpy as np

from .boosted_trees import Objective, Trees
from .kinds import MeasuredTask, Network
from .pretrained_model import PretrainedModel
from .throughput import pairwise_accuracy, relative_throughput

_ROUNDS = 60
"""Number of trees of the local part; few, because samples are few."""

_EXPECTED_ACCURACY, _PRIOR_SAMPLES = 0.85, 8
"""Prior on the global part's pairwise accuracy on a new task, and the weight of this prior in
samples."""


class ResidualTrees:
    """A model f(x) = f_global(x) + f_local(x), whose local part learns during a run.

    After "Learning to Optimize Tensor Programs" (Chen et al., 2018, section 4). The local part
    learns the residual of the global part from all tasks of the run. The global part has less
    weight for tasks whose measurements it misorders. ``pretrained_model``: the global part or None.
    """

    def __init__(
        self, pretrained_model: PretrainedModel | None, *, objective: Objective, seed: int
    ) -> None:
        self._pretrained = pretrained_model
        self._objective = objective
        self._seed = seed
        self._local: Trees | None = None

    @property
    def source(self) -> Trees | Network | None:
        """The global part."""
        return None if self._pretrained is None else self._pretrained.model

    @property
    def is_trained(self) -> bool:
        """True if there is a global part, or a local one."""
        return self._pretrained is not None or self._local is not None

    def learn(self, tasks: Sequence[MeasuredTask]) -> None:
        """Fit the local part; see ``Adaptation.learn``."""
        features = [np.array(task.features) for task in tasks]
        residuals = [
            relative_throughput(np.array(task.secs)) - self._predict_global(task_features, task)
            for task, task_features in zip(tasks, features, strict=True)
        ]
        self._local = Trees.fit(
            self._represent(np.concatenate(features)),
            np.concatenate(residuals),
            np.repeat(np.arange(len(tasks)), [len(task.secs) for task in tasks]),
            objective=self._objective,
            rounds=_ROUNDS,
            seed=self._seed,
        )

    def predict(self, features: np.ndarray, task: MeasuredTask) -> np.ndarray:
        """Predict with both parts; see ``Adaptation.predict``."""
        scores = self._predict_global(features, task)
        if self._local is not None and len(features):
            scores += self._local.predict(self._represent(features))
        return scores

    def _predict_global(self, features: np.ndarray, task: MeasuredTask) -> np.ndarray:
        if self._pretrained is None or not len(features):
            return np.zeros(len(features))
        return self._weight(task) * self._pretrained.model.predict(features)

    def _represent(self, features: np.ndarray) -> np.ndarray:
        return features if self._pretrained is None else self._pretrained.represent(features)

    def _weight(self, task: MeasuredTask) -> float:
        """The weight of the global part for a task, from 0 to 1.

        It is 1 before the first measurement, and falls to 0 as the accuracy falls to chance.
        """
        if self._pretrained is None or not task.secs:
            return 1.0
        predicted = self._pretrained.model.predict(np.array(task.features))
        accuracy = pairwise_accuracy(predicted, np.array(task.secs))
        if np.isnan(accuracy):
            return 1.0
        samples = len(task.secs)
        accuracy = _EXPECTED_ACCURACY * _PRIOR_SAMPLES + accuracy * samples
        accuracy /= _PRIOR_SAMPLES + samples
        return float(np.clip((accuracy - 0.5) / (_EXPECTED_ACCURACY - 0.5), 0.0, 1.0))
