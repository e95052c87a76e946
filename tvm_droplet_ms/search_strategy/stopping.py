# SPDX-License-Identifier: Apache-2.0
"""What further trials are expected to gain, and when a search ends. Imports no TVM.

The gain falls with the trials, and grows with the room that the roofline leaves. Other signs tell
nothing beside the trials: those since the last gain, the last gain itself, the expected improvement
of the surrogate, the scatter of the best times (deviances of 0.71 to 0.72 of a constant's, the
trials alone 0.71, with the room 0.47; ten layers, each predicted from the nine others, four seeds,
2026-11-26).
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias

Stop: TypeAlias = Literal["auto"] | float | None
"""The expected gain of the next ``AHEAD`` trials below which a task ends: "auto" for
``LEAST_GAIN``, or a share of its best time. None: the task spends its trials."""

AHEAD = 32
"""The trials that a forecast is for."""

LEAST_GAIN = 0.008
"""The gain that "auto" stands for. It keeps 99.0% of the speed of 128 trials in half of them (as
above; ``python training/forecast.py fit``)."""

GAIN, BY_TRIALS, BY_ROOM = 0.026, 1.00, 0.64
"""The gain that is forecast after 32 trials of a kernel with ``USUAL_ROOM``, and the powers of the
trials by which it falls and of the room by which it grows."""

FEWEST = 8
"""The trials from which on the forecast falls."""

HIGH = 1.81
"""The gain that four of five runs do not exceed, in times of the forecast."""

LEAST_ROOM, USUAL_ROOM, MOST_ROOM = 0.01, 0.1, 0.3
"""The share of the best time that lies above the roofline, within the limits of what it says:
the roofline is an estimate, which some kernels beat and others never come near."""

WRONG_ROOF = 0.75
"""A best time that is below this share of the roofline shows that the roofline is another
machine's."""


@dataclass(frozen=True)
class Forecast:
    """What the next ``AHEAD`` trials are expected to take off the best time.

    ``gain``: the expected gain, as a share of the best time. ``high``: what it is at most with a
    probability of 80%; as many runs gain nothing, there is no lower end.
    """

    gain: float
    high: float

    def __str__(self) -> str:
        return (
            f"{AHEAD} further trials are expected to gain {self.gain:.1%} (80%: at most "
            f"{self.high:.1%})"
        )


def forecast(trials: int, room: float = USUAL_ROOM) -> Forecast:
    """Forecast the gain of the next trials of a search.

    ``trials``: those that were measured. ``room``: the share of the best time above the roofline.
    Log-linear in both, fitted by quasi-likelihood from ``FEWEST`` trials on.
    """
    room = min(max(room, LEAST_ROOM), MOST_ROOM)
    gain = GAIN * (32 / max(trials, FEWEST)) ** BY_TRIALS * (room / USUAL_ROOM) ** BY_ROOM
    return Forecast(gain, HIGH * gain)


class StopRule:
    """Ends a search that expects too little of its next trials.

    ``stop``: when. ``bound_secs``: the roofline of the kernel in seconds; None where it is not
    known. ``forecast``: the last forecast; None before there was one.
    """

    def __init__(self, stop: Stop, bound_secs: float | None = None) -> None:
        self._least = LEAST_GAIN if stop == "auto" else stop
        self._bound_secs = math.nan if bound_secs is None else bound_secs
        self.forecast: Forecast | None = None

    def is_over(self, trials: int, best_secs: float) -> bool:
        """Forecast the next trials; True if they are expected to gain too little.

        ``trials``: the schedules that were measured, those of earlier runs included.
        """
        share = self._bound_secs / best_secs
        is_known = share * WRONG_ROOF < 1.0  # False for NaN.
        self.forecast = forecast(trials, 1.0 - share) if is_known else forecast(trials)
        return self._least is not None and self.forecast.gain < self._least


def check_stop(stop: Stop) -> None:
    """Raise ``ValueError`` unless ``stop`` is "auto", a share from 0 to 1, or None."""
    if stop is None or stop == "auto":
        return
    if not isinstance(stop, Real) or isinstance(stop, bool) or not 0.0 <= stop <= 1.0:
        raise ValueError(f'stop is {stop!r}, expected "auto", a share from 0 to 1, or None')
