# SPDX-License-Identifier: Apache-2.0
"""The number of schedules to sample for each kernel in the available time. Does not import TVM.

Sampling a schedule and scoring it with the cost model takes 14 ms of one core. Compiling a kernel
takes as long as about ten samples. 64 samples for each of 100 kernels take a minute and a half
before there is an executable. Expensive kernels are sampled again, and measured, after that.
"""

import time
from collections.abc import Callable, Sequence

SECS_PER_SAMPLE = 0.014
"""The seconds of a sample on one core, measured on a Zen 4; the initial guess for any machine."""

COMPILED = 11
"""The time to compile a kernel, as a number of samples."""

GOAL_SECS, GOAL_SECS_PER_KERNEL = 2.0, 0.13
"""The target seconds for picking and compiling a first executable: fixed, and per kernel."""

SHARE = 0.4
"""The share of the time for picking and compiling if the goal leaves a kernel fewer than ``FEWEST``
samples."""

HEAVY = 2.0
"""The samples of a heavy kernel, as a multiple of an equal share."""

HOPELESS = 0.5
"""If less than this share of the compile time is left, no schedules are sampled."""

AMPLE = 10.0
"""If at least this multiple of the goal time is left, an earlier run's hurried picks are redone."""

FEWEST = 8
"""With fewer samples, a pick is little better than a random schedule."""

MOST, LEAST = 64, 16
"""The useful numbers of samples: for the kernels that hold ``HEAVY_SHARE`` of the model's time at
stake, and for the others. Sampling and scoring cost the same for a light kernel."""

HEAVY_SHARE = 0.9


def weighing(gains: Sequence[float], share: float) -> list[int]:
    """Return the kernels with the largest gains that hold a share of all gains, largest first."""
    total, held = sum(gains), 0.0
    chosen: list[int] = []
    for place in sorted(range(len(gains)), key=lambda place: -gains[place]):
        if held >= share * total or not gains[place] > 0.0:
            break
        chosen.append(place)
        held += gains[place]
    return chosen


class PickPace:
    """Decides how many samples each kernel gets; ``left``: returns the run's remaining seconds."""

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
        # The initial guess counts as this many samples, so that one odd kernel does not dominate.
        self._samples = float(FEWEST * workers)
        self._secs = self._samples * SECS_PER_SAMPLE / workers

    @property
    def is_ample(self) -> bool:
        """Whether there is time to redo an earlier run's hurried picks."""
        return self._left() >= AMPLE * self._goal

    @property
    def is_over(self) -> bool:
        """Whether the time of the run is over: even a plain schedule takes some milliseconds."""
        return self._left() <= 0.0

    def expect(self, kernels: int) -> None:
        """Set the number of kernels to sample: the others have picks of an earlier run."""
        self._waiting = max(1, kernels)

    def count(self, wish: int, *, is_heavy: bool = False) -> int:
        """Return the number of samples for the next kernel, at most ``wish``.

        ``is_heavy``: whether the kernel is among those that hold most of the model's time; these
        come first. Returns 1 if there is time for only one schedule besides the plain one. Returns
        0 if the time hardly suffices to compile the kernels: not even one schedule is sampled.
        """
        waiting, self._waiting = self._waiting, max(1, self._waiting - 1)
        secs_per_sample = self._secs / self._samples
        compiling = COMPILED * self._kernels * secs_per_sample
        # A kernel without a schedule takes as long to compile, and runs far too long.
        if self._left() < HOPELESS * compiling:
            return 0

        spent = self._clock() - self._began

        def affordable(secs: float) -> int:
            """Return the number of samples if picking and compiling may take ``secs`` in total."""
            free = min(secs - spent, self._left()) - compiling
            return int((HEAVY if is_heavy else 1.0) * free / (waiting * secs_per_sample))

        by_share = min(FEWEST, affordable(self._share))
        return max(1, min(wish, max(by_share, affordable(self._goal))))

    def done(self, samples: int, secs: float) -> None:
        """Record that all processes together took ``samples`` samples in ``secs`` seconds."""
        self._samples += samples
        self._secs += secs
