# SPDX-License-Identifier: Apache-2.0
"""A timer for the parts of a run."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Parts:
    """Seconds by part. Parts do not overlap; a part that is entered again accumulates."""

    def __init__(self) -> None:
        self.secs: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the duration of a block to a part."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.secs[name] = self.secs.get(name, 0.0) + time.monotonic() - start
