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
"""Plain measures of runs at fixed numbers of trials, and bootstrap intervals over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .score import Floats, Runs, ScoreError, SpaceScore, at_trials, best_so_far

TRIALS = (8, 16, 32, 64, 128)
"""At how many trials the fraction of the optimum is reported."""

FRACTIONS = (0.90, 0.95, 0.99)
"""To what fractions of the optimum the trials are reported."""


def fraction_of_optimum(optimum: float, runs: Runs, trials: ArrayLike = TRIALS) -> Floats:
    """The optimum divided by the best time that each run has found.

    Parameters
    ----------
    optimum : float
        The smallest time of the space.
    runs : sequence of sequences of float
        The times of each seed in order; a run that ended keeps its best.
    trials : array_like of int
        Numbers of trials.

    Returns
    -------
    NDArray[float64]
        Shape (seeds, len(trials)): 1 at the optimum, 0 before the first success.
    """
    return optimum / at_trials(runs, trials)


def trials_to_fraction(optimum: float, runs: Runs, fraction: float) -> list[int | None]:
    """After how many trials each run reached this fraction of the optimum; None if it did not."""
    reached = optimum / best_so_far(runs) >= fraction
    return [int(row.argmax()) + 1 if row.any() else None for row in reached]


def median_trials(trials: Sequence[int | None]) -> float | None:
    """The median where None, a run that did not get there, is later than any number.

    None if the median itself is not reached.
    """
    median = float(np.median([np.inf if number is None else number for number in trials]))
    return median if np.isfinite(median) else None


@dataclass(frozen=True)
class Interval:
    """An estimate and its bootstrap percentile interval.

    Parameters
    ----------
    value : float
        The estimate from all seeds.
    low, high : float
        The ends of the interval.
    """

    value: float
    low: float
    high: float


def bootstrap(
    samples: Sequence[Floats],
    statistic: Callable[[Sequence[Floats]], float],
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a statistic, with the seeds of each space drawn anew.

    Parameters
    ----------
    samples : sequence of NDArray
        An array for each space; its first axis is the seeds.
    statistic : callable
        Of the arrays with their drawn seeds.
    confidence : float
        The probability mass of the interval.
    resamples : int
        How often the seeds are drawn.
    seed : int
        Of the drawing.
    """
    random = np.random.default_rng(seed)
    drawn = [
        statistic([array[random.integers(len(array), size=len(array))] for array in samples])
        for _ in range(resamples)
    ]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(statistic(samples)), float(low), float(high))


def score_interval(
    spaces: Sequence[SpaceScore],
    runs: Sequence[Runs],
    others: Sequence[Runs] | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The performance score over all spaces, the mean of theirs, and its interval over seeds.

    Parameters
    ----------
    spaces : sequence of SpaceScore
        The spaces.
    runs : sequence of runs
        The runs on each space, a row for each seed.
    others : sequence of runs, optional
        The runs of another strategy with the same seeds. With them the result is by how much the
        score of ``runs`` is higher, the seeds drawn in pairs.
    confidence, resamples, seed
        As for ``bootstrap``.

    Raises
    ------
    ScoreError
        If the two strategies have not the same number of seeds on a space.
    """
    ranks = [space.ranks(run) for space, run in zip(spaces, runs, strict=True)]
    samples = ranks
    if others is not None:
        theirs = [space.ranks(run) for space, run in zip(spaces, others, strict=True)]
        samples = _paired(ranks, theirs)

    def score(drawn: Sequence[Floats]) -> float:
        if others is None:
            means = [s.curve(rank).mean() for s, rank in zip(spaces, drawn, strict=True)]
        else:
            means = [
                s.curve(both[:, 0]).mean() - s.curve(both[:, 1]).mean()
                for s, both in zip(spaces, drawn, strict=True)
            ]
        return float(np.mean(means))

    return bootstrap(samples, score, confidence=confidence, resamples=resamples, seed=seed)


def fraction_interval(
    optima: Sequence[float],
    runs: Sequence[Runs],
    trials: int,
    others: Sequence[Runs] | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The mean fraction of the optimum after ``trials`` trials, over seeds and then over spaces.

    ``optima`` are the smallest times of the spaces; the rest is as for ``score_interval``.
    """

    def fractions(all_runs: Sequence[Runs]) -> list[Floats]:
        return [
            fraction_of_optimum(optimum, run, [trials])
            for optimum, run in zip(optima, all_runs, strict=True)
        ]

    samples = fractions(runs)
    if others is not None:
        pairs = _paired(samples, fractions(others))
        samples = [both[:, 0] - both[:, 1] for both in pairs]
    return bootstrap(
        samples,
        lambda drawn: float(np.mean([array.mean() for array in drawn])),
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )


def _paired(ours: Sequence[Floats], theirs: Sequence[Floats]) -> list[Floats]:
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if len(a) != len(b):
            raise ScoreError(
                f"space {index}: {len(a)} seeds of one strategy and {len(b)} of the other; a "
                "paired difference needs the same seeds of both"
            )
    return [np.stack([a, b], axis=1) for a, b in zip(ours, theirs, strict=True)]
