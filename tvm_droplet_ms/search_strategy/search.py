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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.runner import RunnerResult

from .budget import Budget
from .candidates import Candidate, Replayer
from .decisions import Sketch
from .explorer import Explorer
from .history import History, Measured, mean, valid_secs
from .journal import Journal
from .model_descent import ModelDescent
from .neighbourhood import Point

Batch = list[Candidate]

WITHOUT = (
    "exploration",
    "descent",
    "model",
    "joint steps",
    "random points",
    "small batches",
    "parallel annotation",
    "cost model",
)
"""The parts that can be switched off, to see what each is worth."""

_SMALLEST_BATCH = 4

_GROWTH = 8
"""A batch is as large as this fraction of what was measured: what is known grows as slowly."""

_CONVERGED = 1e-3
"""The improvement expected of the most promising step, as a share of the best throughput, below
which the model holds nothing more to be won."""

_DRAWN_FROM_EMPTY = 8
"""How many traces of each design space to draw, to tell why none is in the space."""


@dataclass(frozen=True)
class SearchOptions:
    """What ``DropletStrategy`` is configured with; see there."""

    explore_trials: int
    descent_batch_size: int
    stop_when_converged: bool
    explorer: str
    diversity: float
    epsilon: float
    without: frozenset[str] = frozenset()

    @property
    def explored(self) -> int:
        """The trials before the descent."""
        return 1 if "exploration" in self.without else self.explore_trials


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
        The trials.
    replayer : Replayer
        Replays traces on the task's workload.
    history : History
        What was measured before.
    explorer : Explorer
        Proposes while exploring.
    descent : ModelDescent
        Proposes while descending.
    journal : Journal
        Tells the user.
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
        descent: ModelDescent,
        journal: Journal,
        design_spaces: Sequence[Trace],
    ) -> None:
        self._options = options
        self._budget = budget
        self._replayer = replayer
        self._history = history
        self._explorer = explorer
        self._descent = descent
        self._journal = journal
        self._design_spaces = list(design_spaces)
        self._results: list[RunnerResult] = []

    def batches(self) -> Iterator[Batch]:
        """The batches to measure, one after the other."""
        yield from self._explore(self._options.explored - len(self._history))
        if "descent" not in self._options.without:
            yield from self._descend()
        else:
            yield from self._explore(self._budget.max_trials)
        self._explain_if_empty()

    def _explore(self, trials: int) -> Iterator[Batch]:
        """Explore for a number of trials, and until something was measured with success."""
        if trials <= 0 and self._history.best() is not None:
            return
        self._journal.begin("explore", f"exploring for {max(1, trials)} trials")
        self._explorer.enter(min(max(1, trials), self._budget.num_trials_per_iter))
        while trials > 0 or self._history.best() is None:
            batch = self._explorer.ask(min(max(1, trials), self._budget.room))
            if not batch:
                return
            yield batch
            self._explorer.tell(batch, self._results)
            trials -= len(batch)

    def _descend(self) -> Iterator[Batch]:
        """Step to where the model expects the largest improvement, until there is none."""
        if self._history.best() is None:
            return
        self._begin_descent()
        while True:
            proposals = self._descent.propose(self._batch_size())
            if self._options.stop_when_converged and proposals.improvement < _CONVERGED:
                batch = self._descent.untried_neighbours(self._batch_size())
                if not batch:
                    self._journal.log(
                        "converged",
                        f"local optimum, every neighbour of the best was tried; "
                        f"{self._journal.drops()}",
                    )
                    return
                yield from self._step(batch)
            elif proposals.batch:
                yield from self._step(proposals.batch)
            else:
                trials = len(self._history)
                yield from self._explore(self._batch_size())
                if len(self._history) == trials:
                    return
                self._begin_descent()

    def _begin_descent(self) -> None:
        best = self._history.best()
        if best is not None:
            sketch, point = _read(best)
            start = f"{mean(best.secs) * 1e6:.4g} us, {sketch.describe(point)}"
            self._journal.begin("descend", f"descending from {start}")

    def _step(self, batch: Batch) -> Iterator[Batch]:
        """Measure a batch, and log the step if it has a new best."""
        before = self._history.best()
        yield batch
        after = self._history.best()
        if before is not None and after is not None and after.trace is not before.trace:
            gain = 1.0 - mean(after.secs) / mean(before.secs)
            self._journal.log("step", f"step {_change(before, after)}: -{gain:.1%}")

    def _batch_size(self) -> int:
        size = max(_SMALLEST_BATCH, len(self._history) // _GROWTH)
        if "small batches" in self._options.without:
            size = self._options.descent_batch_size
        return min(size, self._options.descent_batch_size, self._budget.room)

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
        secs = [valid_secs(result.run_secs) for result in results]
        for candidate, times in zip(batch, secs):
            self._history.add(candidate, times)
        failures = [_reason(result) for times, result in zip(secs, results) if not times]
        self._journal.measured(len(batch), failures)

    def conclude(self) -> None:
        """Say how the search ended, at the end of its run."""
        self._journal.log("finished", f"the run ends; {self._journal.drops()}")
        self._journal.warn_if_all_failed()

    def _explain_if_empty(self) -> None:
        """Name the postprocessors that reject everything."""
        if len(self._history) > 0:
            return
        for space in self._design_spaces:
            for _ in range(_DRAWN_FROM_EMPTY):
                self._replayer.replay(Trace(space.insts, {}))
        self._journal.warn_of_empty_space(_DRAWN_FROM_EMPTY * len(self._design_spaces))


def _read(measured: Measured) -> tuple[Sketch, Point]:
    """The sketch and the decisions of a trace."""
    trace = measured.trace.simplified(remove_postproc=True)
    sketch = Sketch.of(trace)
    return sketch, sketch.read(trace)


def _change(before: Measured, after: Measured) -> str:
    """What changed between two traces."""
    (sketch, point), (other, changed) = _read(before), _read(after)
    return sketch.describe_change(point, changed) if sketch == other else other.describe(changed)


def _reason(result: RunnerResult) -> str:
    """Why a measurement failed: the builder's or the runner's words."""
    if result.error_msg is None:
        return f"invalid times {[float(sec) for sec in result.run_secs or ()]}"
    return str(result.error_msg)
