# SPDX-License-Identifier: Apache-2.0
"""``droplet-ms report --follow``: writes the page again while a run goes on."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...display.displays import EVENTS
from ...session.records import RECORDS, WORKLOADS
from ...session.work_dir import RESULT, SCHEDULES
from .history import ReportError

SECONDS = 10
"""Seconds between two looks at the run. The browser loads the page again as often."""

_LEAST_PRIORITY = 19
"""Rendering must not take the CPU from the kernels that the run times."""


def follow(work_dir: str | os.PathLike[str], write: Callable[[int], object]) -> None:
    """Write the page whenever the run has written something, until the user interrupts.

    ``write``: writes the page, given the seconds after which it reloads itself. A run that has
    measured nothing yet, or whose last line is half written, has no page: the next look may find
    one.
    """
    os.nice(_LEAST_PRIORITY)
    before: object = None
    said = ""
    with suppress(KeyboardInterrupt):
        while True:
            now = _state(Path(work_dir))
            if now != before:
                before = now
                try:
                    write(SECONDS)
                except ReportError as error:
                    if str(error) != said:
                        said = str(error)
                        print(f"waiting: {said}", file=sys.stderr, flush=True)
            time.sleep(SECONDS)


def _state(directory: Path) -> list[tuple[str, int, int]]:
    """The names, sizes and times of the files that a run writes."""
    found = []
    for name in (EVENTS, RECORDS, WORKLOADS, SCHEDULES, RESULT):
        with suppress(FileNotFoundError):
            status = (directory / name).stat()
            found.append((name, status.st_size, status.st_mtime_ns))
    return found
