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
"""TransferModel: a MetaSchedule cost model that was trained on other workloads."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tvm_ffi import register_error, structural_hash

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import PyCostModel
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.target import Target

from .boosted_trees import OBJECTIVES, Objective, Trees
from .features.program_features import ProgramFeatures
from .instruction_set import instruction_set
from .model_file import ModelFileError
from .pretrained_model import PretrainedModel, shipped_kinds, shipped_model
from .throughput import median_secs, relative_throughput
from .training.ranking import pairwise_accuracy
from .training.training_data import target_text

# TVM calls load() from C++, which otherwise turns this error into a RuntimeError.
register_error("ModelFileError", ModelFileError)

_ROUNDS = 60
"""Number of trees of the local part; few, because samples are few."""

_GROWTH = 1.2
"""The local part is fitted again when there are this many times as many samples, as TVM's
``XGBModel`` does."""

_EXPECTED_ACCURACY, _PRIOR_SAMPLES = 0.85, 8
"""The pairwise accuracy expected of the global part on a new task, and the number of samples that
this expectation counts as."""

_warnings_given: set[str] = set()
"""The texts of this process's warnings. Python's own record of them is forgotten whenever code
anywhere changes the filters, as ``warnings.catch_warnings`` does."""


@dataclass
class _Task:
    """Measured programs of one task."""

    features: list[np.ndarray] = field(default_factory=list)
    secs: list[float] = field(default_factory=list)

    def weight(self, pretrained_model: PretrainedModel | None) -> float:
        """The weight of the global part for this task, from 0 to 1.

        It is 1 before the first measurement, and falls to 0 as the accuracy falls to chance.
        """
        if pretrained_model is None or not self.secs:
            return 1.0
        predicted = pretrained_model.model.predict(np.array(self.features))
        accuracy = pairwise_accuracy(predicted, np.array(self.secs))
        if np.isnan(accuracy):
            return 1.0
        samples = len(self.secs)
        accuracy = _EXPECTED_ACCURACY * _PRIOR_SAMPLES + accuracy * samples
        accuracy /= _PRIOR_SAMPLES + samples
        return float(np.clip((accuracy - 0.5) / (_EXPECTED_ACCURACY - 0.5), 0.0, 1.0))


@derived_object
class TransferModel(PyCostModel):
    """A cost model that predicts from the first measurement on.

    After "Learning to Optimize Tensor Programs" (Chen et al., 2018, section 4): the score of a
    program is f(x) = f_global(x) + f_local(x). The global part was trained on other workloads. The
    local part learns, from the measurements of the run and of all its tasks, the residual of the
    global part. The weight of the global part falls for a task whose measurements it misorders.

    Parameters
    ----------
    pretrained_model : PretrainedModel | None
        The global part. With None, scores are random until the first measurement, as in TVM's
        ``XGBModel``.
    objective : str
        The objective of the local part: "rank" or "regression".
    learns : bool
        Whether there is a local part.
    seed : int
        Seed of the local part and of random scores.

    Raises
    ------
    ValueError
        Names the argument that is out of its range.

    Examples
    --------
    .. code-block:: python

        from tvm.s_tir import meta_schedule as ms
        from tvm_droplet_ms.cost_model import TransferModel

        database = ms.tune_tir(
            mod, target, work_dir, 64, cost_model=TransferModel.from_file("cpu.model")
        )
    """

    def __init__(
        self,
        pretrained_model: PretrainedModel | None = None,
        *,
        objective: Objective = "regression",
        learns: bool = True,
        seed: int = 0,
    ) -> None:
        """Constructor"""
        super().__init__()
        if objective not in OBJECTIVES:
            raise ValueError(f"objective is {objective!r}, expected one of {', '.join(OBJECTIVES)}")
        self._objective = objective
        self._learns = bool(learns)
        self._seed = int(seed)
        self._begin(pretrained_model)

    def _begin(self, pretrained_model: PretrainedModel | None) -> None:
        """Take a global part, and forget the measurements of the run."""
        self._pretrained = pretrained_model
        self._extractor = (
            ProgramFeatures() if pretrained_model is None else pretrained_model.extractor()
        )
        self._generator = np.random.default_rng(self._seed)
        self._tasks: dict[int, _Task] = {}
        self._local: Trees | None = None
        self._fitted_samples = 0

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "TransferModel":
        """Make a model from a file that ``droplet-ms pretrain`` or ``save`` wrote.

        Parameters
        ----------
        path : str | os.PathLike[str]
            The file.

        Raises
        ------
        ModelFileError
            If the file cannot be read, is no model, or was trained on other features.
        """
        return TransferModel(PretrainedModel.load(path))

    @classmethod
    def pretrained(cls, target: Target | str) -> "TransferModel":
        """Make a model from the one that comes with the package for a kind of target.

        Parameters
        ----------
        target : Target | str
            The target to tune for. The model warns, once in a process for a target, when it
            predicts for an instruction set that it was not trained on.

        Raises
        ------
        ValueError
            If no model comes with the package for this kind of target.
        """
        made = Target(target) if isinstance(target, str) else target
        model = shipped_model(str(made.kind.name))
        if model is None:
            raise ValueError(
                f"target is {made}, and no model comes with the package for its kind, expected one "
                f"of: {', '.join(shipped_kinds())}; train one with droplet-ms pretrain"
            )
        return TransferModel(model)

    def load(self, path: str) -> None:
        """Replace the global part by that of a file, and forget the measurements of the run.

        Parameters
        ----------
        path : str
            The file; see ``from_file``.

        Raises
        ------
        ModelFileError
            If the file cannot be read, is no model, or was trained on other features; the model is
            unchanged.
        """
        self._begin(PretrainedModel.load(path))

    def save(self, path: str) -> None:
        """Write the global part; see ``PretrainedModel.save``. The local part is not kept.

        Parameters
        ----------
        path : str
            The file.

        Raises
        ------
        ValueError
            If there is no global part.
        """
        if self._pretrained is None:
            raise ValueError(
                "the model was not trained on other workloads, so that there is nothing to save; "
                "make a model with droplet-ms pretrain"
            )
        self._pretrained.save(path)

    def update(
        self,
        context: TuneContext,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        """Add measurements of a task; the throughput of a failure is 0.

        A candidate that the machine failed to measure, whose times are empty, is left out.

        Parameters
        ----------
        context : TuneContext
            The task.
        candidates : Sequence[MeasureCandidate]
            The measured candidates.
        results : Sequence[RunnerResult]
            The result of each candidate.
        """
        measured = [
            (candidate, result)
            for candidate, result in zip(candidates, results, strict=True)
            if result.run_secs is None or len(result.run_secs)
        ]
        if not measured:
            return
        task = self._tasks.setdefault(structural_hash(context.mod), _Task())
        task.features += list(
            self._extractor.extract(context, [candidate for candidate, _ in measured])
        )
        task.secs += [median_secs(result.run_secs) for _, result in measured]

    def predict(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Predict the throughput of candidates relative to the best of their workload.

        Parameters
        ----------
        context : TuneContext
            The task.
        candidates : Sequence[MeasureCandidate]
            Candidates of the task.

        Returns
        -------
        scores : np.ndarray
            Array of shape ``(candidates,)``, float64, not negative.
        """
        self._check_instruction_set(context.target)
        self._fit()
        if self._pretrained is None and self._local is None:
            return self._generator.random(len(candidates))
        features = self._extractor.extract(context, candidates)
        task = self._tasks.get(structural_hash(context.mod), _Task())
        scores = self._predict_global(features, task)
        if self._local is not None and len(features):
            scores += self._local.predict(self._represent(features))
        return np.asarray(np.maximum(scores, 0.0))

    def _predict_global(self, features: np.ndarray, task: _Task) -> np.ndarray:
        if self._pretrained is None or not len(features):
            return np.zeros(len(features))
        return task.weight(self._pretrained) * self._pretrained.model.predict(features)

    def _represent(self, features: np.ndarray) -> np.ndarray:
        return features if self._pretrained is None else self._pretrained.represent(features)

    def _fit(self) -> None:
        """Fit the local part to the residual of the global one, if enough samples are new."""
        tasks = [task for task in self._tasks.values() if task.secs]
        samples = sum(len(task.secs) for task in tasks)
        if not self._learns or samples < max(1.0, _GROWTH * self._fitted_samples):
            return
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
        self._fitted_samples = samples

    def _check_instruction_set(self, target: Target) -> None:
        """Warn where the global part was trained on other instruction sets.

        Once in a process for a target: a run of a whole model makes several of these models.
        """
        if self._pretrained is None:
            return
        learned = self._pretrained.instruction_sets
        tuned = instruction_set(target)
        if tuned in learned:
            return
        text = (
            f"the cost model was trained on programs for {', '.join(sorted(learned))}, and tuning "
            f"is for {tuned} (target {target_text(target)}): its predictions may not hold; train a "
            "model on the databases of this target's runs with droplet-ms pretrain, or tune "
            "without a pretrained model"
        )
        if text not in _warnings_given:
            _warnings_given.add(text)
            warnings.warn(text, stacklevel=2)
