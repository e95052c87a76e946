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
"""Trials to a fraction of the optimum, and bootstrap intervals over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .score import Floats, Runs, best_so_far

TRIALS = (8, 16, 32, 64, 128)
"""Numbers of trials at which the fraction of the optimum is reported."""

FRACTIONS = (0.90, 0.95, 0.99)
"""Fractions of the optimum to which the trials are counted."""


def trials_to_fraction(optimum: float, runs: Runs, fraction: float) -> list[int | None]:
    """Trials that each run took to this fraction of the optimum; None if it did not reach it."""
    reached = optimum / best_so_far(runs) >= fraction
    return [int(row.argmax()) + 1 if row.any() else None for row in reached]


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
        Function of the arrays with their drawn seeds.
    confidence : float
        The probability mass of the interval.
    resamples : int
        Number of draws of the seeds.
    seed : int
        Seed of the draws.
    """
    random = np.random.default_rng(seed)
    drawn = [
        statistic([array[random.integers(len(array), size=len(array))] for array in samples])
        for _ in range(resamples)
    ]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(statistic(samples)), float(low), float(high))
