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
"""The auto-tuning field's performance score over the random baseline, counted in trials.

A time is that of one configuration; infinity is a failure. A run is the times of one seed in the
order in which the search tried them, failures and repetitions included, so that both are charged.

The score is that of F.-J. Willemsen et al., "A Methodology for Comparing Auto-Tuning Optimization
Algorithms", Future Generation Computer Systems 159 (2024), and of its software
``autotuning_methodology`` 1.1.0, which calls a trial a function evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Runs = Sequence[Sequence[float]] | Floats


class ScoreError(ValueError):
    """Times or runs that cannot be scored."""


def valid_times(times: ArrayLike) -> Floats:
    """The finite times, ascending.

    Raises
    ------
    ScoreError
        If none is finite.
    """
    values = np.sort(np.asarray(times, dtype=np.float64))
    values = values[np.isfinite(values)]
    if not values.size:
        raise ScoreError("the space has no valid time; a score needs configurations that run")
    return values


def random_baseline(times: ArrayLike, trials: ArrayLike) -> Floats:
    """Best time of random search without replacement, as the field calculates it.

    With N valid times sorted from worst to best, it is the one at index round(M (N + 1) / (M + 1))
    after M trials, and at most the best one: the time at the expected rank. Failures are left out.

    Parameters
    ----------
    times : array_like
        The times of the whole space.
    trials : array_like of int
        Numbers of trials, M.

    Returns
    -------
    NDArray[float64]
        A time for each number of trials.
    """
    descending = valid_times(times)[::-1]
    count, drawn = descending.size, np.asarray(trials)
    index = np.rint(drawn * (count + 1) / (drawn + 1)).astype(np.int64)
    values: Floats = descending[np.minimum(count - 1, index)]
    return values


def trial_budget(
    times: ArrayLike, cutoff: float = 0.95, cutoff_start: float = 0.01
) -> tuple[int, int]:
    """The first and the last trial that count.

    The last is when random search is expected to have come the fraction ``cutoff`` of the way from
    the median to the optimum, the first is the same for ``cutoff_start``; at least two apart.

    Raises
    ------
    ScoreError
        If the space is too small, or too many of its times are the optimum.
    """
    descending = valid_times(times)[::-1]
    first, last = (_trials_to_cutoff(descending, part) for part in (cutoff_start, cutoff))
    if last - first < 2:
        # The published code takes the smaller of this and the target's time here, a slip.
        limit = _trials_to_cutoff(descending, 1.0)
        first, last = (first - 1, min(limit, last + 1)) if first else (0, min(limit, last + 2))
    first = max(first, 1)
    if last <= first:
        raise ScoreError(
            f"random search over {descending.size} valid times needs {last} trials for a cutoff of "
            f"{cutoff} and {first} for {cutoff_start}: the space is too small or too flat to score"
        )
    return first, last


def _trials_to_cutoff(descending: Floats, cutoff: float) -> int:
    optimum, count = descending[-1], descending.size
    target = optimum + (np.median(descending) - optimum) * (1 - cutoff)
    index = int(np.argmax(descending <= target))
    if cutoff != 1.0 and descending[index] == optimum:
        if index == 0:
            raise ScoreError(f"all {count} valid times are equal: there is nothing to search for")
        index -= 1
    return -(-index // (count + 1 - index))


def best_so_far(runs: Runs) -> Floats:
    """The best time of each run after each trial.

    Parameters
    ----------
    runs : sequence of sequences of float
        The times of each seed; a shorter run keeps its best to the end of the longest.

    Returns
    -------
    NDArray[float64]
        Shape (seeds, trials); infinity before the first success.

    Raises
    ------
    ScoreError
        If there is no run, or an empty one.
    """
    lengths = [len(run) for run in runs]
    if not lengths or not min(lengths):
        raise ScoreError(f"runs of {lengths} trials: expected one run or more, none empty")
    padded = np.full((len(lengths), max(lengths)), np.inf)
    for row, run in zip(padded, runs, strict=True):
        row[: len(run)] = run
    best: Floats = np.minimum.accumulate(padded, axis=1)
    return best


def at_trials(runs: Runs, trials: ArrayLike) -> Floats:
    """``best_so_far`` after these numbers of trials: shape (seeds, len(trials))."""
    best, counts = best_so_far(runs), np.asarray(trials)
    if counts.min() < 1:
        raise ScoreError(f"trials {counts.tolist()}: expected numbers from 1")
    return best[:, np.minimum(counts, best.shape[1]) - 1]


@dataclass(frozen=True)
class SpaceScore:
    """Scores runs on one space: 0 is random search, 1 the optimum at once.

    P_t = (S_base(t) - F_t) / (S_base(t) - S_opt), with S_base the random baseline and F_t the time
    at the median rank of the runs' best after t trials. It is not clipped. Random search itself
    comes out above 0, by 0.1 to 0.3, as the median of its rank is better than the expected rank.

    A run that ended keeps its best. The published code drops the runs that ended before the median
    run did, which would reward those that give up.

    Parameters
    ----------
    times : sequence of float
        The times of the whole space; infinite ones are left out.
    cutoff, cutoff_start : float
        As for ``trial_budget``.
    """

    times: Sequence[float]
    cutoff: float = 0.95
    cutoff_start: float = 0.01

    @cached_property
    def valid(self) -> Floats:
        """The valid times, ascending."""
        return valid_times(self.times)

    @property
    def optimum(self) -> float:
        """The smallest time."""
        return float(self.valid[0])

    @cached_property
    def trials(self) -> Ints:
        """The numbers of trials that count, each once."""
        first, last = trial_budget(self.valid, self.cutoff, self.cutoff_start)
        return np.arange(first, last + 1)

    @cached_property
    def baseline(self) -> Floats:
        """S_base at ``trials``."""
        return random_baseline(self.valid, self.trials)

    def ranks(self, runs: Runs) -> Floats:
        """The rank among ``valid`` of each run's best at ``trials``, NaN before its first success.

        Raises
        ------
        ScoreError
            If a run has a time that the space has not: a noisy one, or one of another space.
        """
        return ranks_of(self.valid, at_trials(runs, self.trials))

    def curve(self, ranks: Floats) -> Floats:
        """P_t at ``trials``, from ``ranks``.

        As in the published code, a run counts from its first success; where none has any yet, the
        worst time stands.
        """
        found = self.valid[median_rank(ranks, self.valid.size)]
        return standardise(found, self.baseline, self.optimum)

    def score(self, runs: Runs) -> float:
        """The mean of P_t over ``trials``."""
        return float(self.curve(self.ranks(runs)).mean())


def ranks_of(valid: Floats, best: Floats) -> Floats:
    """The rank of each time among the valid ones, ascending from 0; NaN for infinity.

    Raises
    ------
    ScoreError
        If a finite time is not among them.
    """
    ranks = np.searchsorted(valid, best).astype(np.float64)
    ranks[np.isinf(best)] = np.nan
    found = valid[np.where(ranks < valid.size, ranks, 0).astype(np.int64)]
    unknown = np.isfinite(best) & (found != best)
    if unknown.any():
        raise ScoreError(
            f"a run measured {float(best[unknown][0])}, which is none of the {valid.size} times of "
            "the space: score runs by the best estimates of the same space, not by noisy times"
        )
    return ranks


def median_rank(ranks: Floats, count: int) -> Ints:
    """The median over the rows, without NaN, rounded half to even; count - 1 where all are NaN."""
    known = np.count_nonzero(~np.isnan(ranks), axis=0)
    ordered = np.sort(ranks, axis=0)  # NaN goes last
    columns = np.arange(ranks.shape[1])
    low, high = ordered[np.maximum(known - 1, 0) // 2, columns], ordered[known // 2, columns]
    return np.rint(np.where(known > 0, (low + high) / 2, count - 1)).astype(np.int64)


def standardise(found: Floats, baseline: Floats, optimum: float) -> Floats:
    """P_t = (baseline - found) / (baseline - optimum).

    Raises
    ------
    ScoreError
        If the baseline reaches the optimum.
    """
    if (baseline <= optimum).any():
        raise ScoreError(
            f"random search is expected to find the optimum, {optimum!r}, within the budget: "
            "nothing is left to gain over it; lower the cutoff, or leave this space out"
        )
    return (baseline - found) / (baseline - optimum)
