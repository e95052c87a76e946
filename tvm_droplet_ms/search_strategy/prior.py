# SPDX-License-Identifier: Apache-2.0
"""A cost model's predictions, made before a schedule is measured."""

import math
import os
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tvm_ffi

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.target import Target

from .published.candidates import Candidate
from .published.decisions import SpacePoint

FIND_PRIOR = "tvm_droplet_ms.find_prior"
"""The global function that turns a name into a prior: ``(name: str, target) -> CostModel | None``.
The name is ``"auto"`` or the path of a model file. This package registers the function. Without it,
``"auto"`` means no prior."""

PriorLike: TypeAlias = str | os.PathLike[str] | CostModel | None


def find_prior(prior: PriorLike, target: Target) -> CostModel | None:
    """The cost model of the ``prior`` argument of ``DropletStrategy``; None if there is none.

    Raises ``ValueError`` if no function is registered to load a path, or the file holds no model.
    """
    if prior is None or isinstance(prior, CostModel):
        return prior
    find = tvm_ffi.get_global_func(FIND_PRIOR, allow_missing=True)
    if find is None:
        if prior == "auto":
            return None
        raise ValueError(
            f"prior is {prior!r}, and no function {FIND_PRIOR!r} is registered to load it; "
            "pass a cost model instead"
        )
    return find(os.fspath(prior), target)


def check_prior(prior: PriorLike) -> None:
    """Raise ``ValueError`` for an invalid prior, and for a missing file."""
    if prior is None or prior == "auto" or isinstance(prior, CostModel):
        return
    if not isinstance(prior, str | os.PathLike):
        raise ValueError(
            f"prior is {prior!r}, expected 'auto', the path of a model file, a cost model or None"
        )
    if not os.path.isfile(prior):
        raise ValueError(
            f"prior is {os.fspath(prior)!r}, and there is no such file; expected 'auto', the path "
            "of a model file, a cost model or None"
        )


class CostModelPrior:
    """Predictions of a cost model for points of a task, one for each point.

    The model may learn from the task's own measurements. A prediction shows how far the model can
    be trusted only if it was made before the measurement. ``num_threads``: the number of threads
    that the model may use to extract features. ``means``: the predictions so far, by point.
    """

    def __init__(
        self, model: CostModel, mod: IRModule, target: Target, num_threads: int = 1
    ) -> None:
        self.means: dict[SpacePoint, float] = {}
        self.model = model
        self._context = TuneContext(mod, target=target, num_threads=num_threads)

    def ask(self, candidates: Sequence[tuple[SpacePoint, Candidate]]) -> None:
        """Predict the points that have no prediction yet, given points with their candidates."""
        new = [pair for pair in candidates if pair[0] not in self.means]
        if not new:
            return
        predicted = self.predict([candidate for _, candidate in new])
        for (point, _), value in zip(new, predicted, strict=True):
            self.means[point] = float(value) if math.isfinite(value) else 0.0

    def predict(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """The model's current predictions, of shape ``(candidates,)``; they are not stored."""
        with Profiler.timeit("Droplet/Prior"):
            measured = [candidate.measure_candidate() for candidate in candidates]
            return np.asarray(self.model.predict(self._context, measured))

    def update(
        self, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Let the model learn from measurements."""
        with Profiler.timeit("Droplet/Prior"):
            self.model.update(self._context, list(candidates), list(results))
