# SPDX-License-Identifier: Apache-2.0
"""The events of a kernel's runs in ``progress.jsonl``. Imports no TVM."""

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ...display.displays import EVENTS


@dataclass
class RunEvents:
    """The combined events of a directory's runs.

    ``messages``: the message of the first failure of each kind. ``descends_after``: the numbers of
    trials after which a search changed from exploring to descending. ``secs``: the total seconds of
    the runs, each until its last batch.
    """

    failures: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    descends_after: list[int] = field(default_factory=list)
    secs: float = 0.0


def read_events(work_dir: str | os.PathLike[str]) -> RunEvents | None:
    """Read the events of a directory; None if it has no event file.

    Invalid lines, such as a torn line, are skipped.
    """
    path = Path(work_dir) / EVENTS
    if not path.exists():
        return None
    found, phase = RunEvents(), ""
    last: dict[float, tuple[Counter[str], float]] = {}
    before = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
            started, secs, trials = event["started"], float(event["secs"]), int(event["trials"])
            failures, messages = Counter(event["failures"]), dict(event["messages"])
        except (ValueError, TypeError, LookupError):
            continue
        last[started] = failures, secs
        found.messages = messages | found.messages
        if event.get("phase") == "descend" and phase == "explore":
            found.descends_after.append(before)
        phase, before = event.get("phase") or "", trials
    for failures, secs in last.values():
        found.failures.update(failures)
        found.secs += secs
    return found
