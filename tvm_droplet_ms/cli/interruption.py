# SPDX-License-Identifier: Apache-2.0
"""Signals outside of the tuning itself. Imports no TVM."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from ..session.stop import handling

STATUS = 130
"""The exit status of a command that was interrupted."""


@contextmanager
def ending_at_once(advice: str) -> Iterator[None]:
    """Within it, Ctrl-C and SIGTERM end the process at once, in words, with status 130.

    ``tune`` and ``tune_kernel`` take the first signal while they tune, to end in order. These take
    the others: before and after the tuning, and the second one. No exception is raised, because it
    would have to pass through TVM's C++. The workers end by themselves. Signals that are ignored
    stay so. ``advice``: the command that goes on.
    """

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        # Not print(): a signal may arrive within it.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text)
        os._exit(STATUS)

    text = f"\ninterrupted; what is measured is kept. To go on: {advice}\n".encode()
    with handling(end):
        yield
