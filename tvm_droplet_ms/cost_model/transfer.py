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
"""TransferModel: a MetaSchedule cost model that knows other workloads."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tvm_ffi import structural_hash

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import PyCostModel
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.target import Target

from .boosted_trees import OBJECTIVES, Objective, Trees, relative_throughput
from .features.program_features import ProgramFeatures
from .pretrained_model import PretrainedModel
from .training.ranking import pairwise_accuracy
from .training.training_data import target_text

_PRETRAINED = Path(__file__).parent / "pretrained"

_ROUNDS = 60
"""The trees of what is learned of this run: few, for few samples."""

_GROWTH = 1.2
"""They are fitted again when there are this many times as many samples, as TVM's ``XGBModel``
does."""

_EXPECTED_ACCURACY, _PRIOR_SAMPLES = 0.85, 8
"""What pairwise accuracy is expected of what was learned elsewhere, and as how many samples that
expectation counts."""


@dataclass
class _Task:
    """What was measured of one workload."""

    features: list[np.ndarray] = field(default_factory=list)
    secs: list[float] = field(default_factory=list)

    def weight(self, pretrained_model: PretrainedModel | None) -> float:
        """How far what was learned elsewhere is believed here, from 0 to 1.

        It is 1 before the first measurement, and falls to 0 as the accuracy falls to chance.
        """
        if pretrained_model is None or not self.secs:
            return 1.0
        expected = pretrained_model.model.predict(np.array(self.features))
        accuracy = pairwise_accuracy(expected, np.array(self.secs))
        if np.isnan(accuracy):
            return 1.0
        samples = len(self.secs)
        accuracy = _EXPECTED_ACCURACY * _PRIOR_SAMPLES + accuracy * samples
        accuracy /= _PRIOR_SAMPLES + samples
        return float(np.clip((accuracy - 0.5) / (_EXPECTED_ACCURACY - 0.5), 0.0, 1.0))


@derived_object
class TransferModel(PyCostModel):
    """A cost model that knows something before the first measurement.

    After "Learning to Optimize Tensor Programs" (Chen et al., 2018, section 4): the score of a
    program is f(x) = f_global(x) + f_local(x). The global part was learned from other workloads;
    the local one learns from the measurements of the run, of all its tasks, what the global one
    leaves unexplained. Where the global part misorders the measurements of a task, its weight there
    falls.

    Parameters
    ----------
    pretrained_model : PretrainedModel | None
        What was learned of other workloads; None for nothing. Then candidates are scored at random
        until something was measured, as TVM's ``XGBModel`` does.
    objective : str
        What the local part is fitted for: "rank" or "regression".
    learns : bool
        Whether there is a local part.
    seed : int
        Of the local part, and of scores at random.

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
        self._pretrained_model = pretrained_model
        self._objective = objective
        self._learns = bool(learns)
        self._seed = int(seed)
        self._generator = np.random.default_rng(self._seed)
        self._extractor = (
            ProgramFeatures() if pretrained_model is None else pretrained_model.extractor()
        )
        self._tasks: dict[int, _Task] = {}
        self._local: Trees | None = None
        self._fitted_to = 0
        self._warned = False

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "TransferModel":
        """Make a model of what ``droplet-ms pretrain`` or ``save`` has written.

        Parameters
        ----------
        path : str | os.PathLike[str]
            The file.

        Raises
        ------
        ModelFileError
            If the file cannot be read, is no model, or was made of other features.
        """
        return TransferModel(PretrainedModel.load(path))

    @classmethod
    def pretrained(cls, target: Target) -> "TransferModel":
        """The model that comes with the package: what this project has measured on a CPU.

        Parameters
        ----------
        target : Target
            What is tuned for. Where it is another CPU than that of the measurements, the model
            warns once when it is asked.

        Raises
        ------
        ValueError
            If there is none for this kind of target.
        """
        path = _PRETRAINED / f"{target.kind.name}.model"
        if not path.exists():
            known = ", ".join(sorted(one.stem for one in _PRETRAINED.glob("*.model")))
            raise ValueError(
                f"target is {target}, and no model comes with the package for its kind, but for: "
                f"{known}; train one with droplet-ms pretrain"
            )
        return TransferModel(PretrainedModel.load(path))

    def save(self, path: str) -> None:
        """Write what was learned of other workloads; see ``PretrainedModel.save``.

        Parameters
        ----------
        path : str
            The file.

        Raises
        ------
        ValueError
            If nothing was learned yet.
        """
        if self._pretrained_model is None:
            raise ValueError(
                "the model knows of no other workload, so that there is nothing to save; make one "
                "with droplet-ms pretrain"
            )
        self._pretrained_model.save(path)

    def update(
        self,
        context: TuneContext,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        """Learn from measurements; what failed has no throughput.

        Parameters
        ----------
        context : TuneContext
            The task.
        candidates : Sequence[MeasureCandidate]
            What was measured.
        results : Sequence[RunnerResult]
            One for each.
        """
        if not candidates:
            return
        task = self._tasks.setdefault(structural_hash(context.mod), _Task())
        task.features += list(self._extractor.extract(context, candidates))
        task.secs += [_secs(result) for result in results]

    def predict(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """The throughputs of candidates relative to the best of their workload.

        Parameters
        ----------
        context : TuneContext
            The task.
        candidates : Sequence[MeasureCandidate]
            Of the task.

        Returns
        -------
        scores : np.ndarray
            Of shape ``(candidates,)``, float64, not negative.
        """
        self._warn_of_another_target(context)
        self._fit()
        if self._pretrained_model is None and self._local is None:
            return self._generator.random(len(candidates))
        features = self._extractor.extract(context, candidates)
        task = self._tasks.get(structural_hash(context.mod), _Task())
        scores = self._global(features, task)
        if self._local is not None and len(features):
            scores += self._local.predict(self._represent(features))
        return np.asarray(np.maximum(scores, 0.0))

    def _global(self, features: np.ndarray, task: _Task) -> np.ndarray:
        if self._pretrained_model is None or not len(features):
            return np.zeros(len(features))
        return task.weight(self._pretrained_model) * self._pretrained_model.model.predict(features)

    def _represent(self, features: np.ndarray) -> np.ndarray:
        return (
            features
            if self._pretrained_model is None
            else self._pretrained_model.represent(features)
        )

    def _fit(self) -> None:
        """Fit the local part to what the global one leaves, if there is enough that is new."""
        tasks = [task for task in self._tasks.values() if task.secs]
        samples = sum(len(task.secs) for task in tasks)
        if not self._learns or samples < max(1.0, _GROWTH * self._fitted_to):
            return
        features = [np.array(task.features) for task in tasks]
        left = [
            relative_throughput(np.array(task.secs)) - self._global(of_task, task)
            for task, of_task in zip(tasks, features, strict=True)
        ]
        self._local = Trees.fit(
            self._represent(np.concatenate(features)),
            np.concatenate(left),
            np.repeat(np.arange(len(tasks)), [len(task.secs) for task in tasks]),
            objective=self._objective,
            rounds=_ROUNDS,
            seed=self._seed,
        )
        self._fitted_to = samples

    def _warn_of_another_target(self, context: TuneContext) -> None:
        if self._pretrained_model is None or self._warned:
            return
        target = target_text(context.target)
        if target not in self._pretrained_model.targets:
            self._warned = True
            warnings.warn(
                f"the cost model was trained on {self._pretrained_model.target}, and tuning is for "
                f"{target}: what it knows may not hold; train one with droplet-ms pretrain",
                stacklevel=2,
            )


def _secs(result: RunnerResult) -> float:
    """The median time, as TVM's ``XGBModel`` takes it; infinity for a failure."""
    times = np.array([float(sec) for sec in result.run_secs or ()])
    if not len(times) or not np.all(np.isfinite(times) & (times > 0)):
        return float("inf")
    return float(np.median(times))
