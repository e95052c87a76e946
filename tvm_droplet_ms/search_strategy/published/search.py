# SPDX-License-Identifier: Apache-2.0
"""The search of one task: explore as a storm, then exploit as a raindrop."""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tvm.s_tir.meta_schedule.runner import RunnerResult

from .candidates import Candidate, History, Replayer, mean, valid_secs
from .coordinate_descent import Times, coordinate_descent
from .decisions import DesignSpaces, Prober
from .neighborhood import Neighborhood, Point

logger = logging.getLogger(__name__)

Batch = list[Candidate]

Phase = Literal["explore", "descend"]


@dataclass
class Budget:
    """The trial limits of a task and of a batch, and the number of trials so far."""

    max_trials: int
    num_trials_per_iter: int
    trials: int = 0

    @property
    def room(self) -> int:
        """The maximum number of candidates in the next batch."""
        return min(self.num_trials_per_iter, self.max_trials - self.trials)


class Exploration(Protocol):
    """The exploration of one run: proposes candidates that were never measured."""

    def enter(self, batch_size: int) -> None:
        """Begin to explore in batches of at most ``batch_size`` candidates."""

    def leave(self) -> None:
        """Release the resources of the exploration; a second call does nothing."""

    def ask(self, count: int) -> list[Candidate]:
        """At most ``count`` new candidates; empty when the space is exhausted."""

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """Take the results of a batch from ``ask``."""


class Descent(Protocol):
    """Proposes batches from the best measured schedule."""

    def descend(self) -> Generator[Batch, None, bool]:
        """Yield batches of new candidates, each measured before the next is requested.

        Returns True at a local optimum, False if there are no new candidates for another reason.
        """


@dataclass
class Search:
    """The search of a task, which explores for some trials, including the database's.

    The lifecycle enforces the budget by requesting no more batches.
    """

    name: str
    history: History
    budget: Budget
    exploration: Exploration
    descent: Descent
    explore_trials: int

    def __post_init__(self) -> None:
        self._results: list[RunnerResult] = []

    def batches(self) -> Iterator[Batch]:
        """Explore, then descend from the best schedule; the search ends at a local optimum."""
        yield from self._explore(self.explore_trials - len(self.history), self.explore_trials)
        best = self.history.best()
        if best is None:
            return
        self._begins("descend", f"descending from {mean(best.secs) * 1e6:.4g} us")
        if len(best.secs) == 1:
            logger.warning(
                "%s: candidates are timed once, so that the significance test decides nothing; "
                "time them several times, as with EvaluatorConfig(repeat=3)",
                self.name,
            )
        # A database may have only schedules of other design spaces.
        while not (yield from self.descent.descend()):
            if not (yield from self._explore(self.explore_trials, self.explore_trials)):
                return

    def _explore(self, trials: int, batch_size: int) -> Generator[Batch, None, bool]:
        """Explore for some trials, and until one succeeds; return whether anything was proposed."""
        found = False
        if trials <= 0 and self.history.best() is not None:
            return found
        # If all trials failed, exploration continues in batches of the same size.
        size = trials if trials > 0 else batch_size
        self._begins("explore", f"exploring for {size} trials")
        self.exploration.enter(min(size, self.budget.num_trials_per_iter))
        while trials > 0 or self.history.best() is None:
            size = trials if trials > 0 else batch_size
            batch = self.exploration.ask(min(size, self.budget.room))
            if not batch:
                return found
            found = True
            yield batch
            self.exploration.tell(batch, self._results)
            trials -= len(batch)
        return found

    def _begins(self, phase: Phase, message: str) -> None:
        """Log that a phase begins."""
        logger.info("%s: %s", self.name, message)

    def tell(self, batch: Batch, results: Sequence[RunnerResult]) -> None:
        """Take the results of the last batch."""
        self._results = list(results)
        for candidate, result in zip(batch, results, strict=True):
            self.history.add(candidate, valid_secs(result.run_secs))

    def end(self) -> None:
        """Release the resources of the search."""
        self.exploration.leave()


@dataclass
class CoordinateDescent:
    """Descends from the best schedule by ``coordinate_descent``, and replays its points."""

    replayer: Replayer
    history: History
    spaces: DesignSpaces
    prober: Prober
    batch_size: Callable[[], int]

    def __post_init__(self) -> None:
        self._unmeasured: dict[Point, Candidate] = {}
        self._sketch = 0

    def descend(self) -> Generator[Batch, None, bool]:
        """See ``Descent``."""
        found = self.spaces.best(self.history)
        if found is None:
            return False
        best, (self._sketch, start) = found
        search = coordinate_descent(
            start, best.secs, self._neighborhood, self._known, self.batch_size
        )
        points = next(search, None)
        while points is not None:
            candidates = {point: self._unmeasured[point] for point in points}
            yield list(candidates.values())
            try:
                points = search.send(
                    {point: self.history.secs(tried) for point, tried in candidates.items()}
                )
            except StopIteration:
                points = None
        # A neighbor that the machine failed to measure may be better than the local optimum.
        return all(candidate in self.history for candidate in self._unmeasured.values())

    def _neighborhood(self, point: Point) -> Neighborhood:
        self._unmeasured.clear()
        sketch = self.spaces.sketches[self._sketch]
        return self.prober.neighborhood(sketch, self.spaces.trace((self._sketch, point)))

    def _known(self, point: Point) -> Times | None:
        """The times of a measured point, empty for a rejected one; None for a new one."""
        candidate = self.replayer.replay(self.spaces.trace((self._sketch, point)))
        if candidate is None:
            return ()
        if candidate in self.history:
            return self.history.secs(candidate)
        if any(candidate.module == other.module for other in self._unmeasured.values()):
            # Another point of the same module waits for its measurement.
            return ()
        self._unmeasured[point] = candidate
        return None
