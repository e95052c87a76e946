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
"""The search of one task: explore as a storm, then exploit as a raindrop."""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.runner import RunnerResult

from .candidates import Candidate, Replayer
from .decisions import largest_parallel_extent
from .descent import Descent, Trial
from .explorer import Explorer
from .history import History, Measured, valid_secs
from .log import Event, Phase, SearchProgress, logger
from .significance import Noise
from .starts import Start, choose_starts

Batch = list[Candidate]

_DRAWN_FROM_EMPTY = 8
"""How many traces of each design space to draw, to tell why none is in the space."""


@dataclass(frozen=True)
class SearchOptions:
    """What ``DropletStrategy`` is configured with; see there."""

    explore_trials: int
    explore_patience: int
    num_starts: int
    descent_batch_size: int
    p_value: float
    stop_when_converged: bool


@dataclass
class Budget:
    """The trials of a task.

    Parameters
    ----------
    max_trials : int
        The most that the task may measure.
    num_trials_per_iter : int
        The most that one batch may measure.
    trials : int
        Those measured so far.
    """

    max_trials: int
    num_trials_per_iter: int
    trials: int = 0

    @property
    def room(self) -> int:
        """How many candidates the next batch may have."""
        return min(self.num_trials_per_iter, self.max_trials - self.trials)


class DropletSearch:
    """Iterates over the batches that a task should measure.

    After each batch, ``tell`` must be called before the next is asked for. Iteration ends when the
    space is exhausted, or has converged and ``stop_when_converged`` is set; the budget is the
    caller's to enforce, who stops asking.

    Parameters
    ----------
    task : str
        The task's name, for the log.
    options : SearchOptions
        The configuration.
    budget : Budget
        The trials; kept by ``tell``.
    replayer : Replayer
        Replays traces on the task's workload.
    history : History
        What was measured before.
    explorer : Explorer
        Proposes while exploring.
    score : Callable[[Batch], Sequence[float]]
        The cost model's opinion of candidates, higher is better.
    design_spaces : Sequence[Trace]
        The traces of the task's design spaces.
    """

    def __init__(
        self,
        task: str,
        options: SearchOptions,
        budget: Budget,
        replayer: Replayer,
        history: History,
        explorer: Explorer,
        score: Callable[[Batch], Sequence[float]],
        design_spaces: Sequence[Trace],
    ) -> None:
        self._task = task
        self._options = options
        self._budget = budget
        self._replayer = replayer
        self._history = history
        self._explorer = explorer
        self._score = score
        self._design_spaces = list(design_spaces)
        self._parallel_limit = largest_parallel_extent(design_spaces)
        self._noise = Noise(options.p_value)
        self._phase: Phase = "explore"
        self._failures: list[str] = []
        self._results: list[RunnerResult] = []
        self._secs: list[tuple[float, ...]] = []

    def batches(self) -> Iterator[Batch]:
        """The batches to measure, one after the other."""
        yield from self._explore()
        starts = choose_starts(self._history.ranking(), self._options.num_starts)
        while True:
            for start in starts:
                yield from self._descend(start)
            if starts and self._options.stop_when_converged:
                return
            better = yield from self._explore_for_better()
            if better is None:
                self._warn_if_empty()
                return
            starts = [Start.of(better)]

    def _explore(self) -> Iterator[Batch]:
        """Explore until the trials for it are spent, or the best has not moved for long."""
        remaining = self._options.explore_trials - len(self._history)
        if remaining <= 0:
            return
        self._begin("explore", f"exploring for up to {remaining} trials")
        self._explorer.enter(min(remaining, self._budget.num_trials_per_iter))
        best, stale = self._best_secs(), 0
        while remaining > 0 and stale < self._options.explore_patience:
            batch = self._explorer.ask(min(remaining, self._budget.room))
            if not batch:
                return
            yield batch
            self._explorer.tell(batch, self._results)
            remaining -= len(batch)
            for secs in self._secs:
                stale += 1
                if secs and _mean(secs) < best:
                    best, stale = _mean(secs), 0

    def _explore_for_better(self) -> Generator[Batch, None, Measured | None]:
        """Explore until something is faster than all before; None when the space is exhausted."""
        self._begin("explore", "exploring for a better start")
        self._explorer.enter(self._budget.num_trials_per_iter)
        while True:
            best = self._history.best()
            batch = self._explorer.ask(self._budget.room)
            if not batch:
                return None
            yield batch
            self._explorer.tell(batch, self._results)
            found = self._history.best()
            if found is None:
                continue
            if best is None or self._noise.compare(found.secs, best.secs).faster:
                return found

    def _descend(self, start: Start) -> Iterator[Batch]:
        """Descend from a start to a local optimum of the adjacent neighbourhood."""
        self._begin(
            "descend",
            f"descending from {_mean(start.measured.secs) * 1e6:.4g} us, "
            f"{start.sketch.describe(start.point)}",
        )
        incumbent = self._replayer.replay(start.measured.trace)
        if incumbent is not None and incumbent not in self._history:
            # Other postprocessors than the record's made another module of its trace.
            yield [incumbent]
        if incumbent is None or not self._history.secs(incumbent):
            self._log("start-ended", "the start is not in the space any more: %s", self._dropped())
            return
        descent = Descent(
            start.sketch,
            incumbent,
            self._replayer,
            self._history,
            self._noise,
            self._parallel_limit,
        )
        while trials := descent.propose():
            self._report(descent)
            batch = self._fill(trials, descent.incumbent)
            before = self._history.secs(descent.incumbent)[-1]
            yield [trial.candidate for trial in batch]
            for trial, secs in zip(batch, self._secs):
                if trial.proposal is None and secs:
                    self._noise.observe(before, _mean(secs))
            descent.tell(batch, self._secs)
        self._report(descent)
        self._log("start-ended", "local optimum: every neighbour was tried; %s", self._dropped())

    def _fill(self, trials: list[Trial], incumbent: Candidate) -> list[Trial]:
        """Choose a batch: tier by tier, each in the cost model's order."""
        room = min(self._options.descent_batch_size, self._budget.room)
        again = min(self._repetitions(), room - 1)
        scores = self._score([trial.candidate for trial in trials])
        order = sorted(
            range(len(trials)),
            key=lambda index: (_tier(trials[index]), -scores[index]),
        )
        batch = [trials[index] for index in order[: room - again]]
        # One at each end, so that a drift of the machine within the batch shows as noise.
        repeated = Trial(incumbent, None)
        return [repeated] * (again > 0) + batch + [repeated] * (again > 1)

    def _repetitions(self) -> int:
        """How often to measure the incumbent again, where a measurement is a single time."""
        if self._history.has_repeats or self._noise.is_silent:
            return 0
        return 1 if self._noise.is_known else 2

    def tell(self, batch: Batch, results: Sequence[RunnerResult]) -> None:
        """Take the results of the batch that was asked for last.

        Parameters
        ----------
        batch : Batch
            The candidates.
        results : Sequence[RunnerResult]
            One for each.
        """
        self._results = list(results)
        self._secs = [valid_secs(result.run_secs) for result in results]
        self._budget.trials += len(batch)
        for candidate, secs, result in zip(batch, self._secs, results):
            self._history.add(candidate, secs)
            if not secs:
                self._failures.append(_reason(result))
        failed = sum(not secs for secs in self._secs)
        self._log("batch", "%d measured, %d failed", len(batch), failed)
        self._warn_if_all_failed()

    def conclude(self) -> None:
        """Say how the search ended, at the end of its run."""
        self._log("finished", "the run ends; %s", self._dropped())
        self._warn_if_all_failed()

    def _warn_if_all_failed(self) -> None:
        if self._failures and self._history.best() is None:
            logger.warning(
                "%s: all %d candidates failed; the first error: %s",
                self._task,
                len(self._failures),
                self._failures[0],
            )

    def _warn_if_empty(self) -> None:
        """Name the postprocessors that reject everything, which evolution keeps to itself."""
        if len(self._history) > 0:
            return
        drawn = 0
        for space in self._design_spaces:
            for _ in range(_DRAWN_FROM_EMPTY):
                self._replayer.replay(Trace(space.insts, {}))
                drawn += 1
        logger.warning(
            "%s: the search found no candidate to measure; of %d drawn at random, %s",
            self._task,
            drawn,
            self._dropped(),
        )

    def _begin(self, phase: Phase, what: str) -> None:
        self._phase = phase
        self._log("phase", "%s", what)

    def _report(self, descent: Descent) -> None:
        for step in descent.steps:
            verdict = step.verdict
            self._log(
                "step", "step %s: -%.1f%% (%s)", step.change, 100 * verdict.gain, verdict.evidence
            )
        descent.steps.clear()

    def _dropped(self) -> str:
        dropped = ", ".join(f"{count} by {who}" for who, count in self._replayer.dropped.items())
        return f"proposals dropped: {dropped or 'none'}"

    def _best_secs(self) -> float:
        best = self._history.best()
        return math.inf if best is None else _mean(best.secs)

    def _log(self, event: Event, message: str, *args: object) -> None:
        best = self._history.best()
        progress = SearchProgress(
            task=self._task,
            event=event,
            phase=self._phase,
            trials=self._budget.trials,
            best_secs=self._best_secs(),
            best_trace=None if best is None else best.trace,
        )
        best_so_far = "none yet" if best is None else f"{progress.best_secs * 1e6:.4g} us"
        logger.info(
            f"%s: %s, trial %d, best %s: {message}",
            self._task,
            self._phase,
            progress.trials,
            best_so_far,
            *args,
            extra={"progress": progress},
        )


def _mean(secs: Sequence[float]) -> float:
    return sum(secs) / len(secs)


def _tier(trial: Trial) -> int:
    return trial.proposal.tier if trial.proposal else -1


def _reason(result: RunnerResult) -> str:
    """Why a measurement failed: the builder's or the runner's words."""
    if result.error_msg is None:
        return f"invalid times {[float(sec) for sec in result.run_secs or ()]}"
    return str(result.error_msg)
