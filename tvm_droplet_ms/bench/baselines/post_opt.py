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
"""The moves of TVM's own droplet, its faults included. Imports no TVM.

TVM's code is ``python/tvm/s_tir/meta_schedule/post_optimization`` (0.27); the files named below are
there. ``post_opt_mended.py`` has the same without the faults, ``post_opt_strategy.py`` makes a
search strategy of either.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from ...search_strategy.neighbourhood import Point

FAILED_SECS = 1e10
"""The time of a candidate that did not build or run (``space.py``, ``Space.run``)."""

_NO_SECS = 10_000.0
"""The time of a candidate that was not instantiated (``space.py``, ``Space.run``)."""

_ANNOTATION_POWERS = {
    "meta_schedule.parallel": (5, 9),
    "meta_schedule.vectorize": (4, 8),
    "pragma_auto_unroll_max_step": (7, 11),
    "meta_schedule.thread_extent_low_inclusive": (5, 6),
    "meta_schedule.thread_extent_high_inclusive": (8, 12),
}
"""The least and greatest power of two that is tried for an annotation's value."""

_TILE_POWERS = (1, 6)
"""The same for each position of a tile."""


class RecordedTrace:
    """The space that TVM's droplet makes of a recorded trace (``space.py``, ``Space.template``).

    An axis for each constant of five annotations, those of the recorded postprocessors included,
    and one for each position of each tile. Its values are the recorded one, then powers of two.

    Its faults are kept:

    - the values know nothing of the loop's extent, and TVM repairs on replay what does not divide
      it: many positions are one program, and a tile's outermost position does nothing;
    - the recorded value stands first, so neighbours along an axis are not close in value;
    - ``SampleCategorical`` and ``SampleComputeLocation`` have no axis, while annotations have one
      that the recorded postprocessors' instructions have made ineffective;
    - ``TransformLayout`` is deleted while the instructions are walked: the one after it is
      skipped, and a tile further on is looked up at the wrong place, where the last decision
      stands in for one that is not found.

    Parameters
    ----------
    trace : list[Any]
        The trace as JSON, ``[instructions, decisions]``, its postprocessors included.

    Attributes
    ----------
    values : list[list[int]]
        The values of each axis.
    """

    def __init__(self, trace: list[Any]) -> None:
        self._trace = deepcopy(trace)
        self.values: list[list[int]] = []
        for holder, place, (low, high) in _slots(deepcopy(trace)):
            found = holder[place]
            powers = [1 << exponent for exponent in range(low, high + 1)]
            self.values.append([found, *(power for power in powers if power != found)])

    @property
    def sizes(self) -> list[int]:
        """The number of values of each axis."""
        return [len(values) for values in self.values]

    def write(self, position: Sequence[int]) -> list[Any]:
        """The trace, as JSON, with the values that a position has along the axes."""
        trace = deepcopy(self._trace)
        slots = list(_slots(trace))
        for (holder, place, _), values, index in zip(slots, self.values, position, strict=True):
            holder[place] = values[index]
        return trace


def _slots(trace: list[Any]) -> Iterator[tuple[list[Any], int, tuple[int, int]]]:
    """Where each axis has its value: a list, the place in it, and the powers to try."""
    insts, decisions = trace
    index = 0
    while index < len(insts):
        kind, inputs, attrs, _ = insts[index]
        if kind == "TransformLayout":
            # The next instruction takes its place, and is never looked at.
            del insts[index]
        elif kind == "Annotate" and attrs[0] in _ANNOTATION_POWERS:
            yield inputs, 1, _ANNOTATION_POWERS[attrs[0]]
        elif kind == "SamplePerfectTile":
            tile = next((made for inst, made in decisions if inst == index), decisions[-1][1])
            for place in range(len(tile)):
                yield tile, place, _TILE_POWERS
        index += 1


class ShippedDroplet:
    """The descent of TVM's droplet (``droplet.py``, ``Droplet``), one round after the other.

    Its faults are kept:

    - neighbours lie one step up a single axis, modulo its size, never down (``next_pos``);
    - whether a step was taken is looked up by the step's own number, as if it were a position
      (``search_space``): after the first round no axis is moved by one any more;
    - the numbers of positions overflow 64 bits, so that positions of a space with many axes can
      share one (``Space.knob2point``); so do positions beyond the end of a short axis;
    - the times of a round are numbered without the candidates that could not be instantiated, and
      the positions with them: every time after one of those is credited to another position
      (``Space.run`` and ``update``);
    - the smallest mean wins, however noisy: the p-value is never used (``update``);
    - a candidate that fails to build or run counts as valid, so a neighbourhood in which all fail
      ends the descent (``update``);
    - the start is measured again, and the last trial is never used (``next_batch``).

    Parameters
    ----------
    sizes : Sequence[int]
        The number of values of each axis.
    best_secs : Sequence[float]
        The recorded times of position 0 in seconds.
    batch_size : int
        Up to how many positions a round is filled with longer steps; TVM takes the number of the
        host's CPUs. The number of axes where that is larger.
    max_trials : int
        The trials of the descent, those of candidates that cannot be instantiated included.

    Attributes
    ----------
    best : Point
        The position that the descent takes for the best.
    """

    def __init__(
        self, sizes: Sequence[int], best_secs: Sequence[float], batch_size: int, max_trials: int
    ) -> None:
        self.best: Point = (0,) * len(sizes)
        self._sizes = list(sizes)
        self._strides = [int(np.prod(self._sizes[:axis])) for axis in range(len(sizes))]
        self._best_secs = float(np.mean(best_secs))
        self._batch_size = max(batch_size, len(sizes))
        self._remaining = max_trials - 1
        self._visited = {0}
        self._next = [self.best]
        self._step = 1
        self._improved = True
        self._speculate()

    def ask(self) -> list[Point]:
        """The positions of the next round; empty when the descent has ended."""
        if not self._improved:
            return []
        return self._next[: self._remaining]

    def tell(self, times: Sequence[Sequence[float]]) -> None:
        """Take the times of a round.

        Parameters
        ----------
        times : Sequence[Sequence[float]]
            Of the candidates that could be instantiated, one after the other, in seconds;
            ``FAILED_SECS`` for those that failed after that.
        """
        asked = self.ask()
        self._remaining -= len(asked)
        means = [float(np.mean(secs)) for secs in times]
        means += [_NO_SECS] * (len(asked) - len(means))
        self._improved = False
        for position, secs in zip(asked, means):
            if secs < self._best_secs:
                self.best, self._best_secs = position, secs
                self._improved = True
        self._next = []
        if all(secs == _NO_SECS for secs in means):
            self._speculate()
            self._improved = True
        elif self._improved:
            self._extend(1)
            self._step = 1
            self._speculate()

    def _speculate(self) -> None:
        """Fill the round with longer and longer steps."""
        while len(self._next) < self._batch_size and self._step < max(self._sizes, default=1):
            self._extend(self._step)
            self._step += 1

    def _extend(self, length: int) -> None:
        """Add the positions that steps of a length lead to."""
        for step in self._steps(length):
            moved = tuple(
                (place + by) % size for place, by, size in zip(self.best, step, self._sizes)
            )
            number = self._number(moved)
            if number not in self._visited:
                self._visited.add(number)
                self._next.append(moved)

    def _steps(self, length: int) -> list[Point]:
        steps: list[Point] = []
        for axis in reversed(range(len(self._sizes))):
            if len(steps) > self._batch_size - len(self._next):
                break
            step = tuple(length if other == axis else 0 for other in range(len(self._sizes)))
            if self._number(step) not in self._visited:
                steps.append(step)
        return steps

    def _number(self, position: Point) -> int:
        return sum(stride * place for stride, place in zip(self._strides, position))
