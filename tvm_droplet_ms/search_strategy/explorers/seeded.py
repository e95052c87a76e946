# SPDX-License-Identifier: Apache-2.0
"""Explorers that begin with given points, or with the known schedules of other kernels."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.runner import RunnerResult

from ..design_spaces import EncodedSpaces
from ..known_schedules import KnownLike, check_known, find_schedules, nearest_points
from ..published.candidates import Candidate
from ..published.decision_kinds import PERFECT_TILE
from ..published.decisions import SpacePoint
from .base import Explorer, ExplorerRun, SearchContext
from .random_sampling import RandomExplorer

Seeds: TypeAlias = Callable[[SearchContext], Sequence[SpacePoint]]
"""Returns the points to start a task with, the most promising first. It is called when the task is
first explored, so that it can use the measurements of other tasks. For a task with measurements, it
is called at the beginning of the run."""

_REPEATED_ROUNDS = 4
"""The maximum number of proposals of the explorer for one batch, because they may repeat seeds."""


class SeededExplorer(Explorer):
    """Explores given points first, and then with another explorer.

    Parameters
    ----------
    seeds : Seeds
        Returns the points. Points outside the task's design spaces, and points that a postprocessor
        rejects, are left out.
    explorer : Explorer | None
        The explorer that fills the batch and continues. None for ``RandomExplorer()``.
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
    """Proposes the seeds of a task, and then the candidates of another exploration.

    ``seeds``: returns the points. ``exploration``: proposes the rest. It begins only when it is
    needed, because it may sample many schedules first.
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
        """Release the resources of the other exploration."""
        self._exploration.leave()
        self._has_entered = False

    def waiting(self) -> int:
        """Number of seeds that were never measured."""
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
        """Pass on the results of the other exploration's candidates."""
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
    """True if the point's sketch, number of values and loop extents match the design spaces.

    TVM repairs other illegal values on replay. But a wrong number of tile factors raises an error,
    and a factor of zero ends the process.
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


NEAREST = 3
"""Number of known schedules that a task begins with."""


class KnownExplorer(SeededExplorer):
    """Explores the best schedules of the nearest known kernels first, refitted to the task.

    Near kernels have the same kinds of decisions over loops of about the same extents.

    Parameters
    ----------
    known : str | os.PathLike[str] | None
        "auto" for the schedules that come with the package, None for no schedules, or the path of
        a file that ``python -m tvm_droplet_ms.tuning.experience.shipped_schedules`` wrote.
    explorer : Explorer | None
        The explorer that fills the batch and continues. None for ``RandomExplorer()``.

    Raises
    ------
    ValueError
        If the file does not exist, or holds no known schedules.
    """

    def __init__(self, known: KnownLike = "auto", explorer: Explorer | None = None) -> None:
        check_known(known)
        self.known = known
        super().__init__(self._nearest, explorer)

    def _nearest(self, search: SearchContext) -> list[SpacePoint]:
        """The nearest known schedules, refitted; none for a task with earlier measurements."""
        if len(search.history) > 0:
            return []
        known = find_schedules(self.known, search.history.target)
        return nearest_points(known, search.spaces, NEAREST)

    def clone(self) -> "KnownExplorer":
        """An explorer of the same configuration."""
        return KnownExplorer(self.known, self.explorer.clone())
