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
from .history import History, Measured, mean, valid_secs
from .journal import Journal
from .significance import Noise
from .starts import Start, choose_starts

Batch = list[Candidate]

WITHOUT = (
    "exploration",
    "descent",
    "cost-model order",
    "significance test",
    "joint steps",
    "multi-start",
    "parallel annotation",
)
"""The parts that can be switched off, to see what each is worth."""

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
    without: frozenset[str] = frozenset()

    @property
    def starts(self) -> int:
        """From how many traces to descend."""
        return 1 if "multi-start" in self.without else self.num_starts

    @property
    def explored(self) -> int:
        """The trials before the first descent: one for each start where nothing is explored."""
        return self.starts if "exploration" in self.without else self.explore_trials


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
    journal : Journal
        Tells the user.
    score : Callable[[Batch], Sequence[float]]
        The cost model's opinion of candidates, higher is better.
    design_spaces : Sequence[Trace]
        The traces of the task's design spaces.
    """

    def __init__(
        self,
        options: SearchOptions,
        budget: Budget,
        replayer: Replayer,
        history: History,
        explorer: Explorer,
        journal: Journal,
        score: Callable[[Batch], Sequence[float]],
        design_spaces: Sequence[Trace],
    ) -> None:
        self._options = options
        self._budget = budget
        self._replayer = replayer
        self._history = history
        self._explorer = explorer
        self._journal = journal
        self._score = score
        self._design_spaces = list(design_spaces)
        self._parallel_limit = (
            0
            if "parallel annotation" in options.without
            else largest_parallel_extent(design_spaces)
        )
        # Where one in two equal modules may count as faster, any gain does.
        self._noise = Noise(0.5 if "significance test" in options.without else options.p_value)
        self._results: list[RunnerResult] = []
        self._secs: list[tuple[float, ...]] = []

    def batches(self) -> Iterator[Batch]:
        """The batches to measure, one after the other."""
        yield from self._explore()
        starts = choose_starts(self._history.ranking(), self._options.starts)
        while True:
            if "descent" in self._options.without:
                starts = []
            for start in starts:
                yield from self._descend(start)
            if starts and self._options.stop_when_converged:
                return
            better = yield from self._explore_for_better()
            if better is None:
                self._explain_if_empty()
                return
            starts = [Start.of(better)]

    def _explore(self) -> Iterator[Batch]:
        """Explore until the trials for it are spent, or the best has not moved for long."""
        remaining = self._options.explored - len(self._history)
        if remaining <= 0:
            return
        self._journal.begin("explore", f"exploring for up to {remaining} trials")
        self._explorer.enter(min(remaining, self._budget.num_trials_per_iter))
        known = self._history.best()
        best, stale = (mean(known.secs) if known else math.inf), 0
        while remaining > 0 and stale < self._options.explore_patience:
            batch = self._explorer.ask(min(remaining, self._budget.room))
            if not batch:
                return
            yield batch
            self._explorer.tell(batch, self._results)
            remaining -= len(batch)
            for secs in self._secs:
                stale += 1
                if secs and mean(secs) < best:
                    best, stale = mean(secs), 0

    def _explore_for_better(self) -> Generator[Batch, None, Measured | None]:
        """Explore until something is faster than all before; None when the space is exhausted."""
        self._journal.begin("explore", "exploring for a better start")
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
        self._journal.begin(
            "descend",
            f"descending from {mean(start.measured.secs) * 1e6:.4g} us, "
            f"{start.sketch.describe(start.point)}",
        )
        incumbent = self._replayer.replay(start.measured.trace)
        if incumbent is not None and incumbent not in self._history:
            # Other postprocessors than the record's made another module of its trace.
            yield [incumbent]
        if incumbent is None or not self._history.secs(incumbent):
            self._journal.log(
                "start-ended", f"the start is not in the space any more; {self._journal.drops()}"
            )
            return
        descent = Descent(
            start.sketch,
            incumbent,
            self._replayer,
            self._history,
            self._noise,
            self._parallel_limit,
            joint_steps="joint steps" not in self._options.without,
        )
        while trials := descent.propose():
            self._report(descent)
            batch = self._fill(trials, descent.incumbent)
            before = self._history.secs(descent.incumbent)[-1]
            yield [trial.candidate for trial in batch]
            for trial, secs in zip(batch, self._secs):
                if trial.proposal is None and secs:
                    self._noise.observe(before, mean(secs))
            descent.tell(batch, self._secs)
        self._report(descent)
        self._journal.log(
            "start-ended", f"local optimum, every neighbour was tried; {self._journal.drops()}"
        )

    def _fill(self, trials: list[Trial], incumbent: Candidate) -> list[Trial]:
        """Choose a batch: tier by tier, each in the cost model's order."""
        room = min(self._options.descent_batch_size, self._budget.room)
        again = min(self._repetitions(), room - 1)
        scores: Sequence[float] = [0.0] * len(trials)
        if "cost-model order" not in self._options.without:
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
        untested = "significance test" in self._options.without
        if untested or self._history.has_repeats or self._noise.is_silent:
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
        for candidate, secs in zip(batch, self._secs):
            self._history.add(candidate, secs)
        failures = [_reason(result) for secs, result in zip(self._secs, results) if not secs]
        self._journal.measured(len(batch), failures)

    def conclude(self) -> None:
        """Say how the search ended, at the end of its run."""
        self._journal.log("finished", f"the run ends; {self._journal.drops()}")
        self._journal.warn_if_all_failed()

    def _explain_if_empty(self) -> None:
        """Name the postprocessors that reject everything, which evolution keeps to itself."""
        if len(self._history) > 0:
            return
        for space in self._design_spaces:
            for _ in range(_DRAWN_FROM_EMPTY):
                self._replayer.replay(Trace(space.insts, {}))
        self._journal.warn_of_empty_space(_DRAWN_FROM_EMPTY * len(self._design_spaces))

    def _report(self, descent: Descent) -> None:
        for step in descent.steps:
            verdict = step.verdict
            self._journal.log(
                "step", f"step {step.change}: -{verdict.gain:.1%} ({verdict.evidence})"
            )
        descent.steps.clear()


def _tier(trial: Trial) -> int:
    return trial.proposal.tier if trial.proposal else -1


def _reason(result: RunnerResult) -> str:
    """Why a measurement failed: the builder's or the runner's words."""
    if result.error_msg is None:
        return f"invalid times {[float(sec) for sec in result.run_secs or ()]}"
    return str(result.error_msg)
