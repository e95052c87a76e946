# SPDX-License-Identifier: Apache-2.0
"""Explores given points first: what is known of a task before it is measured."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.runner import RunnerResult

from ..design_spaces import EncodedSpaces
from ..published.candidates import Candidate
from ..published.decision_kinds import PERFECT_TILE
from ..published.decisions import SpacePoint
from .base import Explorer, ExplorerRun, SearchContext
from .random_sampling import RandomExplorer

Seeds: TypeAlias = Callable[[SearchContext], Sequence[SpacePoint]]
"""Gives the points to start a task with, the most promising first. Called when the task is first
explored, so that it may know what other tasks have measured by then; for a task that was measured
before, at the beginning of the run."""

_REPEATED_ROUNDS = 4
"""Proposals of the explorer in a row, all of them seeds, after which a smaller batch will do."""


class SeededExplorer(Explorer):
    """Explores given points first, and then as another explorer.

    Parameters
    ----------
    seeds : Seeds
        Gives the points. Those that are no points of the task's design spaces, and those that a
        postprocessor rejects, are left out.
    explorer : Explorer | None
        The explorer that fills the batch and goes on. None for ``RandomExplorer()``.
    """

    def __init__(self, seeds: Seeds, explorer: Explorer | None = None) -> None:
        self.seeds = seeds
        self.explorer = RandomExplorer() if explorer is None else explorer

    def initialize_with_tune_context(self, context: TuneContext) -> None:
        """Prepare the other explorer for the task of a context."""
        self.explorer.initialize_with_tune_context(context)

    def begin(self, search: SearchContext) -> ExplorerRun:
        """Make the exploration of a run."""
        return SeededExploration(self.seeds, search, self.explorer.begin(search))

    def clone(self) -> "SeededExplorer":
        """An explorer of the same configuration."""
        return SeededExplorer(self.seeds, self.explorer.clone())


class SeededExploration(ExplorerRun):
    """Proposes the seeds of a task, and then what another exploration proposes.

    ``seeds``: gives the points. ``exploration``: proposes the rest. It begins only when it is
    needed: it may sample many schedules first.
    """

    def __init__(self, seeds: Seeds, search: SearchContext, exploration: ExplorerRun) -> None:
        self._seeds = seeds
        self._search = search
        self._exploration = exploration
        self._planted: list[Candidate] | None = None
        self._batch_size = 1
        self._has_entered = False
        self._theirs: set[int] = set()

    def enter(self, batch_size: int) -> None:
        """Begin to explore in batches of at most ``batch_size`` candidates."""
        self._batch_size = batch_size
        self._has_entered = False

    def leave(self) -> None:
        """Release what the other exploration holds."""
        self._exploration.leave()
        self._has_entered = False

    def waiting(self) -> int:
        """The seeds that were never measured: what is known of the task by now."""
        return sum(candidate not in self._search.history for candidate in self._seedlings())

    def ask(self, count: int) -> list[Candidate]:
        """Propose candidates that were never measured, the seeds first; at most ``count``."""
        planted = self._seedlings()
        batch: dict[int, Candidate] = {}
        while planted and len(batch) < count:
            candidate = planted.pop(0)
            if candidate not in self._search.history:
                batch.setdefault(candidate.module, candidate)
        self._theirs.clear()
        rounds = 0
        while len(batch) < count and rounds < _REPEATED_ROUNDS:
            if not self._has_entered:
                self._exploration.enter(self._batch_size)
                self._has_entered = True
            proposed = self._exploration.ask(count - len(batch))
            if not proposed:
                break
            new = [candidate for candidate in proposed if candidate.module not in batch]
            batch.update((candidate.module, candidate) for candidate in new)
            self._theirs.update(candidate.module for candidate in new)
            rounds += 1
        return list(batch.values())

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """Pass on the results of what the other exploration proposed."""
        theirs = [
            (candidate, result)
            for candidate, result in zip(candidates, results, strict=True)
            if candidate.module in self._theirs
        ]
        if theirs:
            told, results_of_theirs = zip(*theirs, strict=True)
            self._exploration.tell(told, results_of_theirs)

    def _seedlings(self) -> list[Candidate]:
        """The candidates of the seeds that were not proposed yet."""
        if self._planted is None:
            self._planted = self._plant()
        return self._planted

    def _plant(self) -> list[Candidate]:
        """The candidates of the seeds, each module once."""
        spaces = self._search.spaces
        planted: dict[int, Candidate] = {}
        for point in self._seeds(self._search):
            if not is_point_of(spaces, point):
                continue
            candidate = self._search.replayer.replay(spaces.trace(point))
            if candidate is not None:
                planted.setdefault(candidate.module, candidate)
        return list(planted.values())


def is_point_of(spaces: EncodedSpaces, point: SpacePoint) -> bool:
    """True if the design spaces have the point's sketch, its decisions, and its loops' extents.

    TVM repairs other illegal values on replay, but a wrong number of tile factors raises and a
    zero among them ends the process.
    """
    index, values = point
    if not 0 <= index < len(spaces.sketches):
        return False
    sketch, start = spaces.sketches[index], spaces.start(index)
    if len(values) != len(start):
        return False
    tiles = [decision for decision in sketch.decisions if decision.kind == PERFECT_TILE]
    return all(
        min(decision.value(values)) > 0
        and prod(decision.value(values)) == prod(decision.value(start))
        for decision in tiles
    )
