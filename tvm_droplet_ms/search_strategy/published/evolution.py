# SPDX-License-Identifier: Apache-2.0
"""TVM's evolutionary search as an exploration."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

from .candidates import Candidate, History

if TYPE_CHECKING:
    from tvm.s_tir.meta_schedule.cost_model import CostModel

_UNBOUNDED = 2**30
"""The trial limit for evolution: the strategy around it keeps the budget."""

_FRUITLESS_ROUNDS = 5
"""Consecutive proposals, all measured before, after which evolution's space counts as exhausted:
TVM's own ``num_empty_iters_before_early_stop`` (``evolutionary_search.cc``)."""


@dataclass
class Evolution:
    """Proposes the candidates of evolution that were not measured before.

    Evolution knows its own proposals since its ``pre_tuning``, but not the measurements of a
    database or a descent, which lead its population and would fill its batches. So evolution is
    asked for larger batches, by the number of these leaders. This costs nothing: it evolves the
    same population for a batch of any size.
    """

    evolution: EvolutionarySearch
    schedules: Sequence[Schedule]
    history: History
    cost_model: "CostModel"

    def __post_init__(self) -> None:
        self._active = False
        self._surplus: list[Candidate] = []

    def enter(self, batch_size: int) -> None:
        self.leave()
        leaders = int(self.evolution.population_size * self.evolution.init_measured_ratio)
        size = batch_size + min(len(self.history), leaders)
        self.evolution.pre_tuning(
            _UNBOUNDED, size, list(self.schedules), self.history.view, self.cost_model
        )
        self._active = True

    def leave(self) -> None:
        if self._active:
            self.evolution.post_tuning()
            self._active = False
            self._surplus.clear()

    def ask(self, count: int) -> list[Candidate]:
        chosen: dict[int, Candidate] = {}
        for _ in range(_FRUITLESS_ROUNDS):
            with Profiler.timeit("Droplet/Explore"):
                proposed = self.evolution.generate_measure_candidates()
            if proposed is None:
                break
            for proposal in proposed:
                candidate = Candidate.from_schedule(proposal.sch)
                if self._accepts(candidate) and candidate not in self.history:
                    chosen.setdefault(candidate.module, candidate)
            if chosen:
                break
        batch = list(chosen.values())
        if len(batch) > count:
            # The last candidates are drawn at random. Evolution ranks the others first.
            drawn = int(self.evolution.eps_greedy * count)
            first, last = count - drawn, len(batch) - drawn
            self._surplus += batch[first:last]
            batch = batch[:first] + batch[last:]
        chosen = {candidate.module: candidate for candidate in batch}
        # Evolution never proposes the surplus again, so it is used when nothing else is left.
        while len(chosen) < count and self._surplus:
            candidate = self._surplus.pop(0)
            if candidate not in self.history:
                chosen.setdefault(candidate.module, candidate)
        return list(chosen.values())

    def _accepts(self, candidate: Candidate) -> bool:
        """True if a candidate may be measured; the postprocessors have passed it."""
        return True

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        measured = [candidate.measure_candidate() for candidate in candidates]
        self.evolution.notify_runner_results(measured, list(results))
