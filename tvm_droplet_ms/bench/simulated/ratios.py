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
"""Ratios of time between variants, paired by space and seed. Imports no TVM."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Run = tuple[str, int]
"""A space and a seed."""

Courses = Mapping[str, Mapping[Run, Sequence[float]]]
"""The best time after each trial, of each run of each variant."""


@dataclass(frozen=True)
class Ratio:
    """A geometric mean of ratios.

    Parameters
    ----------
    mean : float
        The mean; below 1 the variant is faster than the baseline.
    error : float
        Its standard error, of the logarithms times the mean; NaN of a single pair.
    pairs : int
        The number of ratios.
    """

    mean: float
    error: float
    pairs: int

    @staticmethod
    def of(ratios: Sequence[float]) -> "Ratio":
        """Of at least one ratio, all positive."""
        logs = [math.log(ratio) for ratio in ratios]
        mean = math.exp(statistics.fmean(logs))
        if len(logs) < 2:
            return Ratio(mean, math.nan, len(logs))
        return Ratio(mean, mean * statistics.stdev(logs) / math.sqrt(len(logs)), len(logs))


def ratio_at(
    courses: Courses, variant: str, baseline: str, trials: int, space: str | None = None
) -> Ratio | None:
    """The best time of a variant over that of a baseline, after some trials.

    Parameters
    ----------
    courses : Courses
        The runs.
    variant, baseline : str
        Two of their names.
    trials : int
        The trials; a run that ended earlier keeps its best.
    space : str | None
        One space; None for all of them.

    Returns
    -------
    ratio : Ratio | None
        Of the spaces and seeds that both have run; None without one.
    """
    both = courses[variant].keys() & courses[baseline].keys()
    pairs = sorted(run for run in both if space in (None, run[0]))
    ratios = [
        after(courses[variant][run], trials) / after(courses[baseline][run], trials)
        for run in pairs
    ]
    return Ratio.of(ratios) if ratios else None


def after(course: Sequence[float], trials: int) -> float:
    """The best time of a run after some trials, at least one."""
    return course[min(trials, len(course)) - 1]


def table(
    courses: Courses, baseline: str, checkpoints: Sequence[int], *, by_space: bool = False
) -> list[list[str]]:
    """The header and a row for each variant but the baseline; with spaces, one for each of these.

    Parameters
    ----------
    courses : Courses
        The runs.
    baseline : str
        The variant that the others are compared with.
    checkpoints : Sequence[int]
        Numbers of trials.
    by_space : bool
        Whether each space has a row of its own.
    """
    lines = [[f"time over that of {baseline}", "pairs", *(f"at {count}" for count in checkpoints)]]
    spaces = sorted({space for runs in courses.values() for space, _ in runs})
    for variant in courses:
        for space in spaces if by_space else [None]:
            found = [ratio_at(courses, variant, baseline, count, space) for count in checkpoints]
            ratios = [ratio for ratio in found if ratio is not None]
            if variant == baseline or not ratios:
                continue
            name = variant if space is None else f"{variant}, {space}"
            cells = [f"{ratio.mean:.3f} ({ratio.error:.3f})" for ratio in ratios]
            lines.append([name, str(ratios[0].pairs), *cells])
    return lines
