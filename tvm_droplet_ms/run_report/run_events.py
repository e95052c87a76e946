# SPDX-License-Identifier: Apache-2.0
"""The events of a kernel's runs in ``progress.jsonl``. Imports no TVM."""

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ..display.displays import EVENTS


@dataclass
class RunEvents:
    """The runs of a directory together.

    ``messages``: what the first failure of each kind said. ``descends_after``: the numbers of
    trials after which a search went from exploring to descending. ``secs``: what measuring took.
    """

    failures: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    descends_after: list[int] = field(default_factory=list)
    secs: float = 0.0


def read_events(work_dir: str | os.PathLike[str]) -> RunEvents | None:
    """Read the events of a directory; None where there are none.

    A line that is no event, such as a torn one, is passed over: the page is not about it.
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
