# SPDX-License-Identifier: Apache-2.0
"""The points of a run that were measured or rejected."""

import math

from ..design_spaces import EncodedSpaces
from ..history import TaskHistory
from ..published.candidates import Candidate, mean
from ..published.decisions import SpacePoint


class TriedPoints:
    """Records which points were measured, with their times, and which were rejected.

    Many points may give one module: a point is tried once its module is measured.
    """

    def __init__(self, history: TaskHistory, spaces: EncodedSpaces) -> None:
        self._history = history
        self._spaces = spaces
        self._measured: dict[int, SpacePoint | None] = {}
        self._modules: dict[SpacePoint, int | None] = {}

    def seconds(self) -> dict[SpacePoint, float]:
        """The mean time of every measured point in seconds; infinity for a failure."""
        secs: dict[SpacePoint, float] = {}
        for module, trace, times in self._history.measurements():
            if module not in self._measured:
                self._measured[module] = self._spaces.find(trace)
            point = self._measured[module]
            if point is not None:
                # Other postprocessors may have made another module from the same decisions.
                secs[point] = min(secs.get(point, math.inf), mean(times) if times else math.inf)
                self._modules[point] = module
        return secs

    def note(self, point: SpacePoint, candidate: Candidate | None) -> None:
        """Remember the replay of a point: its candidate, or None if it is rejected."""
        self._modules[point] = None if candidate is None else candidate.module

    def note_new(self, point: SpacePoint, candidate: Candidate | None) -> None:
        """Remember the replay of a point, unless it is known."""
        self._modules.setdefault(point, None if candidate is None else candidate.module)

    def is_tried(self, point: SpacePoint) -> bool:
        """True if the module of a point was measured, or the point is rejected."""
        module = self._modules.get(point, math.inf)
        return module is None or module in self._measured

    def rejected(self) -> list[SpacePoint]:
        """All rejected points, the latest last."""
        return [point for point, module in self._modules.items() if module is None]
