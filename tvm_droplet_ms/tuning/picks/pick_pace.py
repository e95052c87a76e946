# SPDX-License-Identifier: Apache-2.0
"""The number of schedules to sample of each kernel, by the clock. Imports no TVM.

To sample a schedule and to ask the cost model about it takes 14 ms of a core, and to compile a
kernel as long as ten of them: 64 samples of each of 100 kernels take a minute and a half, and only
then is there an executable. What weighs is sampled again, and measured, once there is one.
"""

import time
from collections.abc import Callable, Sequence

SECS_PER_SAMPLE = 0.014
"""The seconds of one core that a sample takes, seen on a Zen 4; the first guess of a machine."""

COMPILED = 11
"""The samples that take as long as to compile a kernel."""

GOAL_SECS, GOAL_SECS_PER_KERNEL = 2.0, 0.13
"""The seconds for picking and compiling that a first executable should be there after."""

SHARE = 0.4
"""The share of the time that picking and compiling may take, where the goal leaves a kernel fewer
than ``FEWEST`` samples."""

HEAVY = 2.0
"""The samples of a heavy kernel, in times of its equal share."""

HOPELESS = 0.5
"""The share of the time for compiling below which no schedules are drawn any more."""

AMPLE = 10.0
"""The time, in times of the goal, in which picks of an earlier run that were made in a hurry are
made anew."""

FEWEST = 8
"""The samples without which a pick is little better than a random one."""

MOST, LEAST = 64, 16
"""The samples that are of use: of the kernels that hold ``HEAVY_SHARE`` of the model's time at
stake, and of the others. Sampling and asking cost the same for a light one."""

HEAVY_SHARE = 0.9


def weighing(gains: Sequence[float], share: float) -> list[int]:
    """The kernels with the largest gains that hold a share of all gains, the largest first."""
    total, held = sum(gains), 0.0
    chosen: list[int] = []
    for place in sorted(range(len(gains)), key=lambda place: -gains[place]):
        if held >= share * total or not gains[place] > 0.0:
            break
        chosen.append(place)
        held += gains[place]
    return chosen


class PickPace:
    """Says how much time each kernel may have, of the seconds of the run that are ``left``."""

    def __init__(
        self,
        kernels: int,
        workers: int,
        left: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kernels = kernels
        self._waiting = kernels
        self._left = left
        self._clock = clock
        self._began = clock()
        self._goal = GOAL_SECS + GOAL_SECS_PER_KERNEL * kernels
        self._share = SHARE * left()
        # Counted as so many samples that were seen, so that one odd kernel does not decide.
        self._samples = float(FEWEST * workers)
        self._secs = self._samples * SECS_PER_SAMPLE / workers

    @property
    def is_ample(self) -> bool:
        """True if there is time to make picks anew that an earlier run made in a hurry."""
        return self._left() >= AMPLE * self._goal

    def expect(self, kernels: int) -> None:
        """So many of the kernels are to be sampled: the others have picks of an earlier run."""
        self._waiting = max(1, kernels)

    def count(self, wish: int, *, is_heavy: bool = False) -> int:
        """The samples of the next kernel, at most ``wish``.

        ``is_heavy``: whether it is one of those that hold most of the model's time, which come
        first. Returns 1 where there is time for one schedule beside the plain one; 0 where the time
        is hardly enough to compile the kernels as they are.
        """
        waiting, self._waiting = self._waiting, max(1, self._waiting - 1)
        secs_per_sample = self._secs / self._samples
        compiling = COMPILED * self._kernels * secs_per_sample
        # A kernel without a schedule takes as long to compile as one with, and runs for ever.
        if self._left() < HOPELESS * compiling:
            return 0

        spent = self._clock() - self._began

        def affordable(secs: float) -> int:
            """The samples that leave picking and compiling so many seconds, from the start."""
            free = min(secs - spent, self._left()) - compiling
            return int((HEAVY if is_heavy else 1.0) * free / (waiting * secs_per_sample))

        by_share = min(FEWEST, affordable(self._share))
        return max(1, min(wish, max(by_share, affordable(self._goal))))

    def done(self, samples: int, secs: float) -> None:
        """So many samples have been taken, by all processes together, in so many seconds."""
        self._samples += samples
        self._secs += secs
