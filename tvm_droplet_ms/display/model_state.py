# SPDX-License-Identifier: Apache-2.0
"""The state of a model while its kernels are tuned. Imports no TVM."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass
class ModelKernel:
    """A kernel of a model while it is tuned.

    - ``weight``: the number of its calls in a run of the model.
    - ``bound_secs``: its roofline, in seconds per call.
    - ``first_secs``: the seconds of a call in the first executable.
    - ``best_secs``: the best seconds of a call so far.
    - ``trials``: the number of its measured schedules, including earlier runs.
    """

    weight: int
    bound_secs: float
    first_secs: float
    best_secs: float
    trials: int = 0

    @property
    def secs(self) -> float:
        """Total seconds of its calls in one run of the model."""
        return self.weight * self.best_secs

    @property
    def roofline_share(self) -> float:
        """The roofline as a share of the best time."""
        return self.bound_secs / self.best_secs

    @property
    def gained_secs(self) -> float:
        """The seconds that a run of the model has gained; 0 if no schedule is faster."""
        return self.weight * max(0.0, self.first_secs - self.best_secs)


@dataclass(frozen=True)
class ModelState:
    """A model while its kernels are tuned.

    - ``first_secs``: the measured latency of the first executable, in seconds.
    - ``kernels``: its tunable kernels, by the structural hash of the workload.
    - ``began``, ``deadline``: the limits of the run, in the time of its clock.
    - ``forecast``: returns the expected gain of another minute, as a share of the latency, from
      the kernels and the latency.
    """

    first_secs: float
    kernels: Mapping[int, ModelKernel]
    began: float
    deadline: float
    forecast: Callable[[Sequence[ModelKernel], float], float]

    def tell(self, key: int, best_secs: float, trials: int) -> None:
        """Record the best time and the trials of a workload; those of other graphs are ignored."""
        if key in self.kernels:
            kernel = self.kernels[key]
            kernel.best_secs = min(kernel.best_secs, best_secs)
            kernel.trials = trials

    @property
    def secs(self) -> float:
        """The latency, estimated by what each kernel has gained since the first executable."""
        return self.first_secs - math.fsum(one.gained_secs for one in self.kernels.values())

    def shown_latency(self, than: str = "") -> str:
        """The latency as text; ``than``: follows a gain, such as " than the first executable"."""
        gain = f"{1 - self.secs / self.first_secs:.0%}"
        if gain == "0%":
            return f"model {_shown_ms(self.first_secs)} ms"
        return f"model about {_shown_ms(self.secs)} ms, {gain} less{than}"

    def shown_time(self, now: float) -> str:
        """The seconds of the run so far and in total; ``now``: the time of its clock."""
        return f"{now - self.began:.0f} of {self.deadline - self.began:.0f} s"

    def shown_forecast(self) -> str:
        """The expected gain of another minute."""
        gain = self.forecast(list(self.kernels.values()), self.secs)
        return f"another minute about {gain:.1%} less"


def _shown_ms(secs: float) -> str:
    """Format seconds as milliseconds with three significant digits, without an exponent."""
    ms = 1e3 * secs
    return f"{ms:.3g}" if ms < 999.5 else f"{ms:.0f}"
