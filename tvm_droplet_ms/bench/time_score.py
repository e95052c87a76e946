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
"""The field's performance score counted in seconds, as its published scores are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression

from .score import (
    Floats,
    Ints,
    Runs,
    ScoreError,
    best_so_far,
    random_baseline,
    ranks_of,
    standardise,
    trial_budget,
    valid_times,
)


@dataclass(frozen=True)
class SpaceTimeScore:
    """Scores runs on one space over the seconds that they took.

    The budget in trials is multiplied by the median seconds of a trial. F_t is an isotonic
    regression of the rank of the best on the seconds since the start, over the trials of all runs:
    the mean of fits to bootstrap samples of them, one for each run. ``autotuning_methodology``
    draws these unseeded, so that its own score changes a little from call to call.

    Parameters
    ----------
    times : sequence of float
        The times of the whole space; infinity for a failure.
    secs : sequence of float
        What a trial of each takes, in any unit; NaN where it is not known.
    cutoff, cutoff_start : float
        As for ``trial_budget``.
    resolution : int
        At how many equally spaced moments the curve is taken.
    bagged : bool
        As published; False is one fit to all trials.
    seed : int
        Of the bootstrap samples.
    """

    times: Sequence[float]
    secs: Sequence[float]
    cutoff: float = 0.95
    cutoff_start: float = 0.01
    resolution: int = 1000
    bagged: bool = True
    seed: int = 0

    @cached_property
    def moments(self) -> Floats:
        """The moments that count, in the unit of ``secs``."""
        median = float(np.nanmedian(self.secs))
        first, last = trial_budget(self.times, self.cutoff, self.cutoff_start)
        return np.linspace(first * median, last * median, self.resolution)

    @cached_property
    def baseline(self) -> Floats:
        """S_base at ``moments``: the baseline in trials, smoothed by a monotone interpolation."""
        trials: Ints = np.rint(np.maximum(self.moments / self._secs_per_trial, 1)).astype(np.int64)
        steps = np.unique(trials)
        if len(steps) < 2:
            return random_baseline(self.times, trials)
        smooth = PchipInterpolator(steps, random_baseline(self.times, steps))
        values: Floats = smooth(np.linspace(trials[0], trials[-1], len(trials)))
        return values

    @property
    def _secs_per_trial(self) -> float:
        # The published formula: the mean of the valid trials, and the mean of the invalid ones
        # weighted by their share.
        valid, secs = np.isfinite(self.times), np.asarray(self.secs, dtype=np.float64)
        if valid.all():
            return float(np.nanmean(secs))
        return float(np.nanmean(secs[valid]) + np.mean(~valid) * np.nanmean(secs[~valid]))

    def curve(self, runs: Runs, secs: Runs) -> Floats:
        """P_t at ``moments``.

        Parameters
        ----------
        runs : sequence of sequences of float
            The times of each seed in order.
        secs : sequence of sequences of float
            What each of these trials took, in the unit of the space's ``secs``.

        Raises
        ------
        ScoreError
            If the two do not match, no trial falls within the moments that count, or a run has a
            time that the space has not.
        """
        valid = valid_times(self.times)
        elapsed, ranks = self._elapsed(runs, secs), ranks_of(valid, best_so_far(runs))
        elapsed[np.isnan(ranks)] = np.nan
        margin = 0.1 + 0.25 / np.count_nonzero(~np.isnan(elapsed).all(axis=0))
        first, last = self.moments[0] * (1 - margin), self.moments[-1] * (1 + margin)
        within = (elapsed >= first) & (elapsed <= last)
        if not within.any():
            raise ScoreError(
                f"no successful trial between {first:.6g} and {last:.6g}, the moments that count; "
                "run longer, or give the seconds in the unit of the space's"
            )
        x, y = elapsed[within], ranks[within]
        rank = _isotonic(x, y, self.moments)
        if self.bagged:
            fits, random = max(len(elapsed), 3), np.random.default_rng(self.seed)
            size = max(int(x.size / np.sqrt(fits)), 1)
            drawn = [random.integers(x.size, size=size) for _ in range(fits)]
            rank = np.mean([_isotonic(x[d], y[d], self.moments) for d in drawn], axis=0)
        ended = np.fmax.reduce(elapsed, axis=1)  # NaN where a run had no success
        later = ended[ended > np.nanmedian(ended)]
        if later.size and later.min() < self.moments[-1]:
            # Fewer than half of the runs went on: what they found then says little.
            stop = int(np.argmax(self.moments > later.min()))
            rank[stop:] = rank[stop]
        found = valid[np.clip(np.rint(rank), 0, valid.size - 1).astype(np.int64)]
        return standardise(found, self.baseline, float(valid[0]))

    def score(self, runs: Runs, secs: Runs) -> float:
        """The mean of P_t over ``moments``."""
        return float(self.curve(runs, secs).mean())

    def _elapsed(self, runs: Runs, secs: Runs) -> Floats:
        lengths = [len(run) for run in runs]
        if [len(run) for run in secs] != lengths:
            raise ScoreError(f"secs of {[len(run) for run in secs]} trials for runs of {lengths}")
        elapsed = np.full((len(lengths), max(lengths)), np.nan)
        for row, run in zip(elapsed, secs, strict=True):
            row[: len(run)] = np.cumsum(run)
        return elapsed


def _isotonic(x: Floats, y: Floats, at: Floats) -> Floats:
    """The best non-increasing fit of y on x, linear between the points."""
    points, index, counts = np.unique(x, return_inverse=True, return_counts=True)
    means = np.bincount(index, weights=y) / counts
    fit = isotonic_regression(means, weights=counts.astype(np.float64), increasing=False)
    values: Floats = np.interp(at, points, fit.x)
    return values
