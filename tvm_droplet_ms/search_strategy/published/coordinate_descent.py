# SPDX-License-Identifier: Apache-2.0
"""Coordinate descent as published: "Explore as a Storm, Exploit as a Raindrop". Imports no TVM.

The Droplet search of Canesche et al. (arXiv 2406.20037, and ACM TACO 2024, doi 10.1145/3650109),
one decision at a time:

1. Propose the points one step from the incumbent along each decision, in both directions.
2. Where a batch has room left, speculate: add the points two steps away along the same directions,
   then three, and so on.
3. Measure the batch. The fastest point that is significantly faster becomes the incumbent: go to 1.
4. If no neighbor is significantly faster, the incumbent is a local optimum.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice

import numpy as np

from .neighborhood import Neighborhood, Point

Times = tuple[float, ...]
"""The times of one measurement in seconds; empty for a failure."""

LONGEST_STEP = 4
"""The longest speculative step; few decisions can go further in one direction."""

P_VALUE = 0.05
"""The level of the published search (``droplet_tuner.py`` of AutoTVM, TVM 0.13 to 0.19)."""


def coordinate_descent(
    start: Point,
    start_times: Times,
    neighborhood: Callable[[Point], Neighborhood],
    known: Callable[[Point], Times | None],
    batch_size: Callable[[], int],
) -> Generator[list[Point], Mapping[Point, Times], Point]:
    """Descend from a point to a local optimum, which is returned.

    Yields batches of points to measure, never empty; their times are sent back.

    Parameters
    ----------
    start, start_times : Point, Times
        The first incumbent, and its times: at least one.
    neighborhood : Callable[[Point], Neighborhood]
        The legal steps around a point.
    known : Callable[[Point], Times | None]
        The times of a measured or a rejected point; None for any other point.
    batch_size : Callable[[], int]
        The maximum number of points in the next batch.
    """
    incumbent, incumbent_times = start, start_times
    while True:
        around = neighborhood(incumbent)
        near = dict.fromkeys(around.steps(incumbent, 1))
        far = dict.fromkeys(
            point
            for length in range(2, LONGEST_STEP + 1)
            for point in around.steps(incumbent, length)
            if point not in near
        )
        times = {point: known(point) for point in near}
        pending = [point for point, measured in times.items() if measured is None]
        speculative = (point for point in far if known(point) is None)
        better = fastest_significant(times, incumbent_times)
        while better is None and pending:
            room = batch_size()
            batch, pending = pending[:room], pending[room:]
            batch += islice(speculative, room - len(batch))
            times.update((yield batch))
            better = fastest_significant(times, incumbent_times)
        if better is None:
            return incumbent
        incumbent, incumbent_times = better, times[better] or ()


def fastest_significant(times: Mapping[Point, Times | None], incumbent: Times) -> Point | None:
    """The fastest point that is significantly faster than the incumbent; None if there is none."""
    means = {
        point: sum(measured) / len(measured)
        for point, measured in times.items()
        if measured and is_faster(measured, incumbent)
    }
    return min(means, key=means.__getitem__, default=None)


def is_faster(
    candidate: Sequence[float], incumbent: Sequence[float], p_value: float = P_VALUE
) -> bool:
    """True if a candidate is faster than the incumbent beyond the noise of its repeats.

    Its mean must be lower, and Student's t-test must reject that both are equal. If either was
    timed only once, or no repeat differs, the lower mean alone decides.
    """
    if np.mean(candidate) >= np.mean(incumbent):
        return False
    if min(len(candidate), len(incumbent)) < 2:
        return True
    probability = students_t_test(candidate, incumbent)
    return bool(np.isnan(probability) or probability <= p_value)


def students_t_test(one: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided p-value of Student's t-test for two samples of equal variance.

    Each sample has at least two values. NaN if neither has any spread and the means are equal.
    """
    first, second = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    freedom = len(first) + len(second) - 2
    squares = ((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum()
    error = np.sqrt(squares / freedom * (1.0 / len(first) + 1.0 / len(second)))
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = float(abs(first.mean() - second.mean()) / error)
    return statistic if math.isnan(statistic) else 1.0 - _within(statistic, freedom)


def _within(statistic: float, freedom: int) -> float:
    """The probability that Student's t lies between the statistic and its negative.

    The finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4, for whole degrees of freedom.
    """
    angle = math.atan(statistic / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (power - 1) / power
        total += term
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total
