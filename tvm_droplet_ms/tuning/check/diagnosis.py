# SPDX-License-Identifier: Apache-2.0
"""Finds what changes a model's outputs: by halves, and under a clock."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...session.stop import StopRequest


class TooLate(Exception):
    """A search ended for want of time."""


class SearchClock:
    """The time of a search, which knows how long its steps take.

    ``stop``: when the search is to end.
    """

    def __init__(self, stop: StopRequest, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop = stop
        self._clock = clock
        self._longest = 0.0

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step of the search.

        Raises ``TooLate`` if the search is over, or what is left is shorter than the longest step
        before.
        """
        if self._stop.is_due or self._stop.left < self._longest:
            raise TooLate
        start = self._clock()
        yield
        self._longest = max(self._longest, self._clock() - start)


def first_change(count: int, agrees: Callable[[int], bool], known: int = 0) -> int:
    """The item that makes the outputs of a sequence disagree.

    By bisection: the outputs agree without the item, and disagree with it, whatever the others do.
    ``count``: the number of items, with all of which the outputs disagree. ``agrees``: whether the
    outputs agree with so many of the first items, and none of the others. ``known``: with so many
    of the first items they agree.
    """
    right, wrong = known, count
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if agrees(middle):
            right = middle
        else:
            wrong = middle
    return wrong - 1


def all_changes(count: int, agrees: Callable[[list[int]], bool]) -> list[int]:
    """The items that change the outputs, one after the other until the others agree.

    ``count``: the number of items; with none of them the outputs agree. ``agrees``: whether the
    outputs agree with some of the items, given by their indices in order. Returns the indices, in
    the order in which they were found. Without them the outputs agree.
    """
    kept, wrong, known = list(range(count)), list[int](), 0
    while known < len(kept) and not agrees(kept):
        # What comes before the item agrees without it too.
        known = first_change(len(kept), lambda number: agrees(kept[:number]), known)
        wrong.append(kept.pop(known))
    return wrong
