# SPDX-License-Identifier: Apache-2.0
"""TransferModel: a MetaSchedule cost model that was trained on other workloads."""

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm_ffi import register_error, structural_hash

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import PyCostModel
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.target import Target

from ..compat.flags import check_flag
from .boosted_trees import OBJECTIVES, Objective
from .features.program_features import CachedFeatures, ProgramFeatures
from .instruction_set import warn_of_others
from .kinds import ADAPTATIONS, Adaptation, AdaptationName, MeasuredTask, network_kind
from .model_file import ModelFileError
from .pretrained_model import PretrainedModel, shipped_model
from .residual import ResidualTrees
from .throughput import median_secs
from .training_data import target_text

register_error("ModelFileError", ModelFileError)

_GROWTH = 1.2
"""Growth factor of the samples after which the model learns again, as in TVM's ``XGBModel``."""


@derived_object
class TransferModel(PyCostModel):
    """A cost model that combines pretraining with the measurements of a run.

    After "Learning to Optimize Tensor Programs" (Chen et al., 2018, section 4): the score of a
    program is f(x) = f_global(x) + f_local(x). The global part was trained on other workloads. The
    local part learns the residual of the global part from the measurements of all tasks of the run.
    The global part has less weight for tasks whose measurements it misorders.

    Parameters
    ----------
    pretrained_model : PretrainedModel | None
        The global part. With None, scores are random until the first measurement, as in TVM's
        ``XGBModel``.
    objective : str
        The objective of the local part: "rank" or "regression".
    learns : bool
        Whether the model learns from the run.
    adaptation : str
        How the model learns. "residual": with a local part. "fine-tune": the global part is trained
        further on the run's measurements. "momentum": like "fine-tune", but the source that each
        training begins from moves one percent toward the result. ``save`` writes the source, so
        that the next run begins there. The last two need a network over data movements
        (``droplet-ms pretrain --model pacm``) and JAX.
    seed : int
        Seed of the learning in the run, and of random scores.

    Raises
    ------
    ValueError
        If an argument is out of range, or the global part does not support the adaptation.
    ImportError
        If the adaptation needs JAX, and it is not installed.

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
        adaptation: AdaptationName = "residual",
        seed: int = 0,
    ) -> None:
        """Constructor"""
        super().__init__()
        if objective not in OBJECTIVES:
            raise ValueError(f"objective is {objective!r}, expected one of {', '.join(OBJECTIVES)}")
        if adaptation not in ADAPTATIONS:
            raise ValueError(
                f"adaptation is {adaptation!r}, expected one of {', '.join(ADAPTATIONS)}"
            )
        self._objective = objective
        self._adaptation_name = adaptation
        self._learns = check_flag("learns", learns)
        self._seed = int(seed)
        self._begin(pretrained_model)

    def _begin(self, pretrained_model: PretrainedModel | None) -> None:
        """Set the global part, and forget the measurements of the run."""
        self._adaptation = self._adapted(pretrained_model)
        self._pretrained = pretrained_model
        self._extractor = CachedFeatures(
            ProgramFeatures() if pretrained_model is None else pretrained_model.extractor()
        )
        self._generator = np.random.default_rng(self._seed)
        self._tasks: dict[tuple[int, str], MeasuredTask] = {}
        self._fitted_samples = 0

    def _adapted(self, pretrained_model: PretrainedModel | None) -> Adaptation:
        """Make the adaptation of a global part; ``ValueError`` if it is not supported."""
        if self._adaptation_name == "residual":
            return ResidualTrees(pretrained_model, objective=self._objective, seed=self._seed)
        adapt = None
        if pretrained_model is not None and pretrained_model.kind != "trees":
            adapt = network_kind(pretrained_model.kind).adapt
        if pretrained_model is None or adapt is None:
            kind = "not there" if pretrained_model is None else f"of kind {pretrained_model.kind}"
            raise ValueError(
                f"adaptation is {self._adaptation_name!r}, and the pretrained model is {kind}, "
                "which cannot be trained further, expected a network over data movements: use "
                "adaptation='residual', or train a network with droplet-ms pretrain --model pacm"
            )
        return adapt(pretrained_model.model, self._adaptation_name, self._seed)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, adaptation: AdaptationName = "residual"
    ) -> "TransferModel":
        """Make a model from a file that ``droplet-ms pretrain`` or ``save`` wrote.

        Parameters
        ----------
        path : str | os.PathLike[str]
            The file.
        adaptation : str
            How the model learns from the run.

        Raises
        ------
        ModelFileError
            If the file cannot be read, is not a model, or was trained on other features.
        ValueError
            If the file's model does not support the adaptation.
        ImportError
            If the adaptation needs JAX, and it is not installed.
        """
        return TransferModel(PretrainedModel.load(path), adaptation=adaptation)

    @classmethod
    def pretrained(cls, target: Target | str) -> "TransferModel":
        """Make a model from the package's pretrained model for a kind of target.

        Parameters
        ----------
        target : Target | str
            The target to tune for. The model warns, once per process and target, if it predicts for
            an instruction set that it was not trained on.

        Raises
        ------
        ValueError
            If the package has no model for this kind of target.
        """
        made = Target(target) if isinstance(target, str) else target
        model = shipped_model(made)
        if model is None:
            raise ValueError(
                f"target is {made}, and no model comes with the package for its kind, expected "
                "llvm; train one with droplet-ms pretrain"
            )
        return TransferModel(model)

    def load(self, path: str) -> None:
        """Load the global part from a file, and forget the measurements of the run.

        Parameters
        ----------
        path : str
            The file; see ``from_file``.

        Raises
        ------
        ModelFileError
            If the file cannot be read, is not a model, or was trained on other features. This model
            is then unchanged.
        ValueError
            If the file's model does not support this model's adaptation. This model is then
            unchanged.
        """
        self._begin(PretrainedModel.load(path))

    def save(self, path: str) -> None:
        """Write the global part; see ``PretrainedModel.save``. The local part is not saved.

        With momentum, the global part has moved toward the network that was trained in this run.

        Parameters
        ----------
        path : str
            The file.

        Raises
        ------
        ValueError
            If there is no global part.
        """
        source = self._adaptation.source
        if self._pretrained is None or source is None:
            raise ValueError(
                "the model was not trained on other workloads, so that there is nothing to save; "
                "make a model with droplet-ms pretrain"
            )
        replace(self._pretrained, model=source).save(path)

    def update(
        self,
        context: TuneContext,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        """Add measurements of a task; the throughput of a failure is 0.

        Candidates that the machinery failed to measure, with empty times, are skipped. So are known
        measurements: a model that is both the prior of a search and TVM's cost model receives
        everything twice.

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
        task = self._tasks.setdefault(_key(context), MeasuredTask())
        measured = [one for one in measured if task.is_new(*_named(*one))]
        if not measured:
            return
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
            Array of shape ``(candidates,)``, float64, nonnegative.
        """
        if self._pretrained is not None:
            warn_of_others(self._pretrained.instruction_sets, context.target)
        self._fit()
        if not self._adaptation.is_trained:
            return self._generator.random(len(candidates))
        features = self._extractor.extract(context, candidates)
        task = self._tasks.get(_key(context), MeasuredTask())
        return np.asarray(np.maximum(self._adaptation.predict(features, task), 0.0))

    def _fit(self) -> None:
        """Learn from the measurements of the run, if enough of them are new."""
        tasks = [task for task in self._tasks.values() if task.secs]
        samples = sum(len(task.secs) for task in tasks)
        if not self._learns or samples < max(1.0, _GROWTH * self._fitted_samples):
            return
        self._adaptation.learn(tasks)
        self._fitted_samples = samples


def _key(context: TuneContext) -> tuple[int, str]:
    """The identity of a task: times of different targets are not compared with each other."""
    return structural_hash(context.mod), target_text(context.target) if context.target else ""


def _named(candidate: MeasureCandidate, result: RunnerResult) -> tuple[int, tuple[float, ...]]:
    """The identity of a measurement: the module and its times."""
    secs = tuple(float(sec) for sec in result.run_secs or ())
    return structural_hash(candidate.sch.mod), secs
