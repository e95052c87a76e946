# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Lines that say how a run goes. Imports no TVM."""

import math
import time
from collections.abc import Callable

EVERY_SECS = 5.0
"""Seconds between lines."""


def show_nothing(_line: str) -> None:
    """For silence."""


class ProgressLines:
    """Says how the tuning of a kernel goes, a line at most every ``EVERY_SECS``.

    Parameters
    ----------
    name : str
        The kernel's name.
    trials : int
        The trials of all runs together.
    known : int
        Those of earlier runs.
    show : Callable[[str], None]
        Told each line.
    clock : Callable[[], float]
        Counts seconds.
    """

    def __init__(
        self,
        name: str,
        trials: int,
        known: int,
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._trials = trials
        self._done = self._known = known
        self._show = show
        self._clock = clock
        self._begun = clock()
        self._next = self._begun
        self._last = ""
        if known:
            show(f"{name}: {known} of {trials} trials are known from earlier runs")

    def batch(self, count: int, failed: int, best_secs: float, since_gain: int) -> None:
        """A batch was measured."""
        self._done += count
        now = self._clock()
        passed = now - self._begun
        left = passed / max(1, self._done - self._known) * (self._trials - self._done)
        best = "none yet" if math.isinf(best_secs) else f"{1e6 * best_secs:.4g} us"
        self._last = (
            f"{self._name}: {self._done} of {self._trials} trials, best {best}, {since_gain} since "
            f"the last gain, {failed} failed, {passed:.0f} s, about {left:.0f} s left"
        )
        if now >= self._next:
            self._flush(now)

    def end(self) -> None:
        """The run has ended; show what was not shown."""
        self._flush(self._clock())

    def _flush(self, now: float) -> None:
        if self._last:
            self._show(self._last)
        self._last, self._next = "", now + EVERY_SECS
