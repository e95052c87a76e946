# SPDX-License-Identifier: Apache-2.0
"""Forecasts the gain of further trials, and decides when a search ends. Imports no TVM.

The gain falls with the number of trials, and grows with the room above the roofline.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias

Stop: TypeAlias = Literal["auto"] | float | None
"""The expected gain of the next ``AHEAD`` trials below which a task ends: "auto" for
``LEAST_GAIN``, or a share of its best time. None: the task spends all its trials."""

AHEAD = 32
"""Number of trials that a forecast covers."""

LEAST_GAIN = 0.008
"""The gain that "auto" stands for: it keeps 99.0% of the speed of 128 trials with half of the
trials (``python training/forecast.py fit``)."""

GAIN, BY_TRIALS, BY_ROOM = 0.026, 1.00, 0.64
"""The forecast gain after 32 trials of a kernel with ``USUAL_ROOM``, the exponent of its fall with
the trials, and the exponent of its growth with the room."""

FEWEST = 8
"""Number of trials from which on the forecast falls."""

HIGH = 1.81
"""The gain that four of five runs do not exceed, as a multiple of the forecast."""

LEAST_ROOM, USUAL_ROOM, MOST_ROOM = 0.01, 0.1, 0.3
"""The room is the share of the best time above the roofline. It is clipped, because the roofline
is an estimate that some kernels beat and others never approach."""

WRONG_ROOF = 0.75
"""A best time below this share of the roofline shows that the roofline is of another machine."""


@dataclass(frozen=True)
class Forecast:
    """The expected reduction of the best time by the next ``AHEAD`` trials.

    ``gain``: the expected gain, as a share of the best time. ``high``: the upper bound of the gain
    with a probability of 80%. There is no lower bound, because many runs gain nothing.
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

    ``trials``: the number of measured trials. ``room``: the share of the best time above the
    roofline. The forecast is log-linear in both, fitted by quasi-likelihood from ``FEWEST`` trials
    on.
    """
    room = min(max(room, LEAST_ROOM), MOST_ROOM)
    gain = GAIN * (32 / max(trials, FEWEST)) ** BY_TRIALS * (room / USUAL_ROOM) ** BY_ROOM
    return Forecast(gain, HIGH * gain)


class StopRule:
    """Ends a search whose next trials are expected to gain too little.

    ``stop``: see ``Stop``. ``bound_secs``: the roofline of the kernel in seconds; None if it is
    unknown. ``forecast``: the last forecast; None before the first one.
    """

    def __init__(self, stop: Stop, bound_secs: float | None = None) -> None:
        self._least = LEAST_GAIN if stop == "auto" else stop
        self._bound_secs = math.nan if bound_secs is None else bound_secs
        self.forecast: Forecast | None = None

    def is_over(self, trials: int, best_secs: float) -> bool:
        """Forecast the next trials; True if they are expected to gain too little.

        ``trials``: the number of measured schedules, including earlier runs.
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
