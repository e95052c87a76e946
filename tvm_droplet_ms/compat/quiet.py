# SPDX-License-Identifier: Apache-2.0
"""Drops lines that TVM's C++ code prints to standard error."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import IO


class _Quiet:
    """Captures standard error in one file for all threads, which share its descriptor.

    The captured lines are printed when the last user leaves.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._texts: Counter[str] = Counter()
        self._dropped: set[bytes] = set()
        self._before = -1
        self._kept: IO[bytes] | None = None

    def enter(self, text: str) -> bool:
        """Start to capture standard error. Returns False if the process has no standard error."""
        with self._lock:
            if self._kept is None:
                try:
                    self._before = os.dup(2)
                except OSError:
                    return False
                sys.stderr.flush()
                self._kept = tempfile.TemporaryFile()
                os.dup2(self._kept.fileno(), 2)
            self._texts[text] += 1
            self._dropped.add(text.encode())
            return True

    def leave(self, text: str) -> None:
        """Print the captured lines, except dropped lines, if no other user is left."""
        with self._lock:
            self._texts[text] -= 1
            if self._kept is None or self._texts.total() > 0:
                return
            sys.stderr.flush()
            os.dup2(self._before, 2)
            os.close(self._before)
            with self._kept as kept:
                kept.seek(0)
                for line in kept:
                    if not any(dropped in line for dropped in self._dropped):
                        os.write(2, line)
            self._kept = None
            self._texts.clear()
            self._dropped.clear()


_QUIET = _Quiet()


@contextmanager
def without_lines(text: str) -> Iterator[None]:
    """Drop lines on standard error that contain a text, while the context lasts.

    All other lines are printed when the context ends, or when the last context ends if several
    threads hold one. TVM's C++ code writes to the file descriptor, which Python's ``warnings`` and
    ``logging`` do not see. If the process has no standard error, the context does nothing.
    """
    if not _QUIET.enter(text):
        yield
        return
    try:
        yield
    finally:
        _QUIET.leave(text)
