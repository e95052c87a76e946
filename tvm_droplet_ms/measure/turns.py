# SPDX-License-Identifier: Apache-2.0
"""The one timer of programs in turns, and the quartiles of its times. Imports no TVM."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import quantiles

REST_SECS = 0.5
"""The seconds until the threads of the previous program sleep; they spin for some time."""

WARM_SECS = 0.05
"""The seconds of warm-up calls after a rest."""


def after_a_rest(timer: Callable[[], float]) -> None:
    """Wait until the threads of other programs sleep, and wake the threads of this program.

    With two threads each, a model took 5.8 ms right after ONNX Runtime, and 2.8 ms after a rest.
    """
    time.sleep(REST_SECS)
    warm = time.monotonic() + WARM_SECS
    while time.monotonic() < warm:
        timer()


def time_in_alternation(
    timers: Mapping[str, Callable[[], float]], rounds: int, *, rests: bool = False
) -> dict[str, list[float]]:
    """Return the seconds of each program in each round; other load affects all programs alike.

    Each program first runs twice to warm up. ``rests``: whether each run comes ``after_a_rest``, as
    programs with several threads need.
    """
    secs: dict[str, list[float]] = {name: [] for name in timers}
    for timer in timers.values():
        timer()
        timer()
    for _ in range(rounds):
        for name, timer in timers.items():
            if rests:
                after_a_rest(timer)
            secs[name].append(timer())
    return secs


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile of at least one value."""
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return low, middle, high
