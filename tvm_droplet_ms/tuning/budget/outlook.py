# SPDX-License-Identifier: Apache-2.0
"""The expected gain of another minute of tuning a whole model. Does not import TVM.

The gain of each kernel's next trials is forecast as in single-kernel tuning
(``stopping.forecast``). Each batch of the minute goes to the kernel with the largest expected gain
in model seconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...search_strategy.stopping import AHEAD, forecast
from .ending import LARGEST, SECS_PER_TRIAL

LOW, HIGH = 0.1, 2.1
"""The 80% interval of the gain, as multiples of the forecast. In 14 recorded runs of eight models,
the next 20 to 60 seconds gained 2.2% with a forecast of 2.2%, and the interval covered 79% of 94
moments (2026-11-27, ``python training/forecast.py models``)."""

_MINUTE = 60.0


class Kernel(Protocol):
    """The state of a kernel; see ``KernelRow``."""

    @property
    def secs(self) -> float:
        """Total seconds of its calls in one run of the model."""

    @property
    def roofline_share(self) -> float:
        """The roofline seconds as a share of ``secs``."""

    @property
    def trials(self) -> int:
        """Number of its measured schedules."""


@dataclass(frozen=True)
class Outlook:
    """The expected gain of another minute, as a share of the model's time.

    ``low``, ``high``: the 80% interval of the gain.
    """

    gain: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"another minute is expected to gain {self.gain:.1%} "
            f"(80% interval {100 * self.low:.1f} to {self.high:.1%})"
        )


def outlook(kernels: Sequence[Kernel], model_secs: float, secs: float = _MINUTE) -> Outlook:
    """Forecast the gain of further seconds.

    ``kernels``: the tunable kernels. ``model_secs``: the time of all kernels, including kernels
    that cannot be tuned.
    """
    if not kernels or not model_secs > 0.0:
        return Outlook(0.0, 0.0, 0.0)
    gained = [0.0] * len(kernels)
    trials = [kernel.trials for kernel in kernels]

    def expected(number: int) -> float:
        """Return the expected gain of a kernel's next batch in seconds."""
        kernel = kernels[number]
        ahead = forecast(trials[number], 1.0 - kernel.roofline_share)
        return (kernel.secs - gained[number]) * ahead.gain * LARGEST / AHEAD

    for _ in range(round(secs / SECS_PER_TRIAL / LARGEST)):
        chosen = max(range(len(kernels)), key=expected)
        gained[chosen] += expected(chosen)
        trials[chosen] += LARGEST
    gain = math.fsum(gained) / model_secs
    return Outlook(gain, LOW * gain, HIGH * gain)
