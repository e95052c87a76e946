# SPDX-License-Identifier: Apache-2.0
"""Follow a search by its log alone, as its user does."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tvm_droplet_ms.search_strategy import SearchProgress

from .objectives import Decisions

_NAMED = re.compile(r"(\w+)#(\d+) (\[[\d, -]+\])(?: -> (\[[\d, -]+\]))?")


class Followed:
    """Log records of a search on the logger ``tvm_droplet_ms``."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        self.records = records

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    @property
    def warnings(self) -> list[str]:
        return [record.getMessage() for record in self.records if record.levelname == "WARNING"]

    def says(self, *parts: str) -> bool:
        """True if one message has all parts."""
        return any(all(part in message for part in parts) for message in self.messages)

    def events(self, *names: str) -> Iterator[tuple[SearchProgress, str]]:
        """The progress and the message of the records of these events; of all without a name."""
        for record in self.records:
            progress = getattr(record, "progress", None)
            if progress is not None and (not names or progress.event in names):
                yield progress, record.getMessage()

    @property
    def last(self) -> SearchProgress:
        *_, (progress, _) = self.events()
        return progress

    def incumbents(self) -> Iterator[Decisions]:
        """The start of each descent, and the point that each of its steps led to."""
        decisions: dict[int, tuple[int, ...]] = {}
        for progress, message in self.events("phase", "step"):
            named = [
                (int(position), tuple(map(int, re.findall(r"-?\d+", after or before))))
                for _, position, before, after in _NAMED.findall(message)
            ]
            if progress.event == "phase":
                decisions = dict(named)
            else:
                decisions.update(named)
            if progress.phase == "descend":
                yield tuple(decisions[position] for position in sorted(decisions))


@contextmanager
def follow(caplog: pytest.LogCaptureFixture) -> Iterator[Followed]:
    """Collect the log records of a search within the block."""
    caplog.clear()
    followed = Followed([])
    with caplog.at_level(logging.INFO, logger="tvm_droplet_ms"):
        yield followed
        followed.records = [
            record for record in caplog.records if record.name.startswith("tvm_droplet_ms")
        ]
