# SPDX-License-Identifier: Apache-2.0
"""The expected gain of a further minute of tuning a whole model. Imports no TVM.

Each kernel's next trials are forecast as those of a single kernel are (``stopping.forecast``); the
trials of the minute go, batch by batch, where they are expected to take most seconds off the model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...search_strategy.stopping import AHEAD, forecast
from .ending import LARGEST, SECS_PER_TRIAL

LOW, HIGH = 0.1, 2.1
"""The interval that the gain lies in with a probability of 80%, in times of the forecast. In 14
recorded runs of eight models the next 20 to 60 seconds gained 2.2%, where 2.2% was forecast, and
the interval held in 79% of 94 moments (2026-11-27, ``python training/forecast.py models``)."""

_MINUTE = 60.0


class Kernel(Protocol):
    """The state of a kernel; see ``KernelRow``."""

    @property
    def secs(self) -> float:
        """The seconds of all its calls in one run of the model."""

    @property
    def roofline_share(self) -> float:
        """The share of these that the roofline allows."""

    @property
    def trials(self) -> int:
        """Its schedules that were measured."""


@dataclass(frozen=True)
class Outlook:
    """What a further minute is expected to take off the model's time, as a share of it.

    ``low``, ``high``: the gain lies between them with a probability of 80%.
    """

    gain: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"a further minute is expected to gain {self.gain:.1%} "
            f"(80% interval {100 * self.low:.1f} to {self.high:.1%})"
        )


def outlook(kernels: Sequence[Kernel], model_secs: float, secs: float = _MINUTE) -> Outlook:
    """Forecast the gain of further seconds.

    ``kernels``: those that can be tuned. ``model_secs``: the time of all kernels, those that cannot
    be tuned included.
    """
    if not kernels or not model_secs > 0.0:
        return Outlook(0.0, 0.0, 0.0)
    gained = [0.0] * len(kernels)
    trials = [kernel.trials for kernel in kernels]

    def expected(number: int) -> float:
        """The seconds that the next batch of a kernel is expected to take off."""
        kernel = kernels[number]
        ahead = forecast(trials[number], 1.0 - kernel.roofline_share)
        return (kernel.secs - gained[number]) * ahead.gain * LARGEST / AHEAD

    for _ in range(round(secs / SECS_PER_TRIAL / LARGEST)):
        chosen = max(range(len(kernels)), key=expected)
        gained[chosen] += expected(chosen)
        trials[chosen] += LARGEST
    gain = math.fsum(gained) / model_secs
    return Outlook(gain, LOW * gain, HIGH * gain)
