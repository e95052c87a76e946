# SPDX-License-Identifier: Apache-2.0
"""Signals and deadlines that end a run before its trials are spent."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that request the end of a run."""


class StopRequest:
    """A request to end a run: at a deadline, or at a signal.

    ``deadline``: the time of ``clock`` at which the run ends, in seconds; infinity for none.
    ``began``: the time of ``clock`` at which the run began.
    """

    def __init__(
        self, deadline: float = float("inf"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.deadline = deadline
        self.began = clock()
        self._clock = clock
        self._asked = threading.Event()

    @property
    def is_asked(self) -> bool:
        """True if a signal requested the end."""
        return self._asked.is_set()

    @property
    def left(self) -> float:
        """The seconds until the deadline; at least 0."""
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
        """A request that ends ``secs`` seconds before this one, and shares its signals."""
        # Without a deadline, ``secs`` is infinite too if it is a share of the time left.
        deadline = self.deadline - secs if isfinite(self.deadline) else self.deadline
        other = StopRequest(deadline, self._clock)
        other.began, other._asked = self.began, self._asked
        return other

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Let a first Ctrl-C or SIGTERM request the end; a second one acts as usual.

        Ignored signals stay ignored, and outside the main thread nothing changes.
        """

        with handling(lambda _number, _frame: self._asked.set(), once=True):
            yield


@contextmanager
def handling(
    handler: Callable[[int, FrameType | None], None], *, once: bool = False
) -> Iterator[None]:
    """Handle the ``SIGNALS`` that are not ignored, in the main thread only.

    ``once``: whether the first signal restores the previous handlers, as leaving the context does.
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
    # Read all handlers before the first is replaced: a signal may arrive immediately.
    before = {number: signal.getsignal(number) for number in handled}
    try:
        for number in handled:
            signal.signal(number, handle)
        yield
    finally:
        restore()
