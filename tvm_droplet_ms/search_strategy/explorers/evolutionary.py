# SPDX-License-Identifier: Apache-2.0
"""TVM's evolutionary search as an explorer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel, PyCostModel
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, MeasureCandidate

from ..candidates import unsound
from ..published.candidates import Candidate
from ..published.evolution import Evolution
from .base import Explorer, ExplorerRun, SearchContext


class EvolutionaryExplorer(Explorer):
    """Explores with TVM's ``EvolutionarySearch``.

    Evolution selects with the prior if there is one, else with the cost model that TVM trains.

    Parameters
    ----------
    **options
        Options of TVM's ``EvolutionarySearch``, such as ``population_size``.

    Raises
    ------
    ValueError
        If ``EvolutionarySearch`` does not take the options.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        try:
            self._evolution = EvolutionarySearch(**options)
        except TypeError as error:
            raise ValueError(
                f"the options of EvolutionaryExplorer are {options!r}, expected those of TVM's "
                f"EvolutionarySearch: {error}"
            ) from error

    def initialize_with_tune_context(self, context: TuneContext) -> None:
        """Prepare evolution for the task of a context."""
        self._evolution._initialize_with_tune_context(context)

    def begin(self, search: SearchContext) -> ExplorerRun:
        """Make the exploration of a run."""
        model = search.cost_model if search.prior is None else search.prior.model
        if model is None:
            model = UniformModel(abs(search.seed))
        return EvolutionaryExploration(self._evolution, search, model)

    def clone(self) -> "EvolutionaryExplorer":
        """An explorer of the same configuration."""
        return EvolutionaryExplorer(**self.options)


class EvolutionaryExploration(Evolution, ExplorerRun):
    """Proposes new candidates of evolution that compute their workload."""

    def __init__(
        self, evolution: EvolutionarySearch, search: SearchContext, cost_model: CostModel
    ) -> None:
        super().__init__(evolution, search.schedules, search.history, cost_model)
        self._dropped = search.replayer.dropped

    def _accepts(self, candidate: Candidate) -> bool:
        """True if a candidate may be measured."""
        reason = unsound(candidate.schedule.mod)
        if reason is not None:
            self._dropped[reason] += 1
        return reason is None


@derived_object
class UniformModel(PyCostModel):
    """A cost model that predicts at random, with its own generator.

    TVM's ``RandomModel`` seeds and restores NumPy's global generator, which is the user's.
    """

    def __init__(self, seed: int) -> None:
        """Constructor"""
        super().__init__()
        self._generator = np.random.default_rng(seed)

    def predict(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> np.ndarray:
        """Random scores from 0 to 1, of shape ``(candidates,)``."""
        return self._generator.random(len(candidates))
