# SPDX-License-Identifier: Apache-2.0
"""Signals and the clock: what ends a run before its trials do."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that ask for the end."""


class StopRequest:
    """The end of a run: at a deadline, or because it was asked to.

    ``deadline``: the moment of ``clock`` to end at, in seconds; infinity for none.
    """

    def __init__(
        self, deadline: float = float("inf"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.deadline = deadline
        self._clock = clock
        self._asked = threading.Event()

    @property
    def is_asked(self) -> bool:
        """True if a signal asked for the end."""
        return self._asked.is_set()

    @property
    def left(self) -> float:
        """The seconds to the deadline; at least 0."""
        return max(0.0, self.deadline - self._clock())

    @property
    def over(self) -> float:
        """The seconds since the deadline; at least 0."""
        return max(0.0, self._clock() - self.deadline)

    @property
    def is_due(self) -> bool:
        """True if the run should end now."""
        return self.is_asked or self._clock() >= self.deadline

    def earlier(self, secs: float) -> "StopRequest":
        """A request that ends so many seconds before this one, and is asked when this one is."""
        # Without a deadline, a share of the time that is left is infinite too.
        deadline = self.deadline - secs if isfinite(self.deadline) else self.deadline
        other = StopRequest(deadline, self._clock)
        other._asked = self._asked
        return other

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Within it, a first Ctrl-C or SIGTERM asks for the end. A second one acts as ever.

        Signals are left alone where they are ignored, and outside the main thread.
        """

        with handling(lambda _number, _frame: self._asked.set(), once=True):
            yield


@contextmanager
def handling(
    handler: Callable[[int, FrameType | None], None], *, once: bool = False
) -> Iterator[None]:
    """Within it, a handler gets the ``SIGNALS`` that are not ignored, in the main thread alone.

    ``once``: whether the first signal puts back the handlers of before, as the end does.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if once:
            restore()
        handler(number, frame)

    def restore() -> None:
        for number, own in before.items():
            signal.signal(number, own)

    is_main = threading.current_thread() is threading.main_thread()
    handled = [one for one in SIGNALS if is_main and signal.getsignal(one) is not signal.SIG_IGN]
    # Known before the first is replaced: a signal may arrive at once.
    before = {number: signal.getsignal(number) for number in handled}
    try:
        for number in handled:
            signal.signal(number, handle)
        yield
    finally:
        restore()
