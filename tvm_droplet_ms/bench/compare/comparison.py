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
"""Results side by side: the best of each strategy on each space after each trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..score import Floats, ScoreError, SpaceScore, valid_times
from .results import RunResult

CUTOFF = 0.95
"""Budget of the score: random search is expected to be this far from the median to the optimum."""


def incumbents(run: RunResult) -> Floats:
    """Best estimate, in seconds, of the module that a run would return after each trial.

    That is the trial with the lowest reported time: with noise, not always the best one measured.

    Returns
    -------
    NDArray[float64]
        A time for each trial; infinity before the first success.
    """
    times, best, lowest = [], np.inf, np.inf
    for trial in run.trials:
        if trial.secs < lowest:
            best, lowest = trial.best_estimate, trial.secs
        times.append(best)
    return np.array(times)


@dataclass(frozen=True)
class Comparison:
    """Results to be compared.

    Parameters
    ----------
    runs : Sequence[RunResult]
        The results, failed ones too.
    times : Mapping[str, Sequence[float]]
        The best estimates of the distinct modules of each space, in seconds; infinity for failures.
    """

    runs: Sequence[RunResult]
    times: Mapping[str, Sequence[float]]

    @property
    def strategies(self) -> list[str]:
        """In the order of the results."""
        return list(dict.fromkeys(run.settings.strategy for run in self.runs))

    @property
    def spaces(self) -> list[str]:
        """In the order of the results."""
        return list(dict.fromkeys(run.settings.space for run in self.runs))

    @property
    def trials(self) -> int:
        """The measurements of a run."""
        return max(run.settings.trials for run in self.runs)

    @property
    def failed(self) -> list[RunResult]:
        """The runs that failed."""
        return [run for run in self.runs if run.error is not None]

    def optimum(self, space: str) -> float:
        """The smallest time of a space, in seconds."""
        return self._optima[space]

    @cached_property
    def _optima(self) -> dict[str, float]:
        return {space: float(valid_times(self.times[space])[0]) for space in self.spaces}

    def finished(self, strategy: str, space: str | None = None) -> list[RunResult]:
        """The runs of a strategy that finished, on one space or all."""
        return [
            run
            for run in self.runs
            if run.error is None
            and run.settings.strategy == strategy
            and space in (None, run.settings.space)
        ]

    def curves(self, strategy: str, space: str) -> Floats:
        """``incumbents`` of each finished run: shape (seeds, trials).

        A run that ended early keeps its incumbent.
        """
        runs = self.finished(strategy, space)
        curves = np.full((len(runs), self.trials), np.inf)
        for row, run in zip(curves, runs):
            found = incumbents(run)[: self.trials]
            row[: len(found)] = found
            row[len(found) :] = found[-1]
        return curves

    def fractions(self, strategy: str, space: str) -> Floats:
        """The optimum divided by ``curves``: 1 at the optimum, 0 before the first success."""
        return self.optimum(space) / self.curves(strategy, space)

    def is_complete(self, strategy: str) -> bool:
        """True if a strategy has a finished run on every space."""
        return all(self.finished(strategy, space) for space in self.spaces)

    @cached_property
    def scores(self) -> dict[str, SpaceScore]:
        """The scores of the spaces, without those that are too small or flat to have one."""
        scores = {}
        for space in self.spaces:
            score = SpaceScore(self.times[space], CUTOFF)
            try:
                score.curve(np.zeros((1, len(score.trials))))
            except ScoreError:
                continue
            scores[space] = score
        return scores
