# SPDX-License-Identifier: Apache-2.0
"""The worth of each decision, from trials that differ only in it. Imports no TVM."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .run_history import Trial


@dataclass(frozen=True)
class Worth:
    """The worth of one decision of one design space.

    - ``decision``: the decision's name.
    - ``groups``: number of sets of trials that differ only in this decision.
    - ``trials``: number of trials in these sets.
    - ``median_ratio``, ``largest_ratio``: the median and the maximum over the sets of the ratio of
      the slowest time to the fastest.
    """

    sketch: int
    decision: str
    groups: int
    trials: int
    median_ratio: float
    largest_ratio: float


def decision_worths(trials: Sequence[Trial]) -> list[Worth]:
    """Compare the successful trials of a workload that differ in one decision.

    Returns the worth of each decision with at least one set, the largest median ratio first.
    """
    sets: dict[tuple[int, str], dict[tuple[str, ...], dict[str, float]]] = defaultdict(dict)
    for trial in trials:
        if math.isinf(trial.secs):
            continue
        values = tuple(value for _, value in trial.decisions)
        for place, (name, value) in enumerate(trial.decisions):
            others = (*values[:place], *values[place + 1 :])
            same = sets[trial.sketch, name].setdefault(others, {})
            same[value] = min(trial.secs, same.get(value, math.inf))
    worths = []
    for (sketch, name), found in sets.items():
        alike = [list(times.values()) for times in found.values() if len(times) > 1]
        if alike:
            ratios = [max(times) / min(times) for times in alike]
            counted = sum(map(len, alike))
            worths.append(Worth(sketch, name, len(alike), counted, median(ratios), max(ratios)))
    return sorted(worths, key=lambda worth: -worth.median_ratio)
