# SPDX-License-Identifier: Apache-2.0
"""The settings and observers that all parts of one run share."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tvm.target import Target

from .experience.strategy import Experience
from .parts import Parts
from .watch import Watch

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunContext:
    """One run of ``tune``, or of the graph search, as all of its parts see it.

    - ``target``: the target, with ``num-cores``. ``threads``: the threads of the model.
    - ``directory``: the work directory.
    - ``seed``: the seed of all random choices.
    - ``experience``: the pretrained cost model and the known schedules.
    - ``watch``: observes the measurements. ``parts``: times the parts of the run.
    - ``notes``: the remarks for the user so far. ``tell``: receives each, by default the log.
    """

    target: Target
    threads: int
    directory: Path
    seed: int = 0
    experience: Experience = field(default_factory=Experience)
    watch: Watch = field(default_factory=Watch)
    parts: Parts = field(default_factory=Parts)
    notes: list[str] = field(default_factory=list)
    tell: Callable[[str], None] = lambda text: logger.warning("%s", text)

    def note(self, text: str) -> None:
        """Tell the user a remark, and keep it."""
        self.tell(text)
        self.notes.append(text)
