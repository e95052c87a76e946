# SPDX-License-Identifier: Apache-2.0
"""The design spaces of a task: their points, and vectors of points for the surrogate."""

from collections.abc import Sequence

import numpy as np

from tvm.s_tir import Trace

from .published import decisions as published
from .published.decisions import SpacePoint
from .published.neighborhood import Point
from .surrogate.encoding import COLUMNS, Encoding, LatentAxis, LatentSpace


class EncodedSpaces(published.DesignSpaces):
    """The points of a task's design spaces, given a trace of each with all its decisions."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        super().__init__(traces)
        self._encoding = Encoding([sketch.decisions for sketch in self.sketches])

    def start(self, sketch: int) -> Point:
        """The decisions that a design space was sampled with."""
        return self.sketches[sketch].read(self._traces[sketch])

    def realized(self, point: SpacePoint, trace: Trace) -> SpacePoint:
        """The point that a replay of a point's trace realized: TVM repairs illegal decisions."""
        sketch, _ = point
        return sketch, self.sketches[sketch].read(trace)

    def vectors(self, points: Sequence[SpacePoint]) -> np.ndarray:
        """The points as vectors of shape ``(points, width)``; see ``Encoding``."""
        return self._encoding.vectors(points)

    def vectors_of(self, sketch: int, decisions: np.ndarray) -> np.ndarray:
        """Points of one sketch as vectors; `decisions` is of shape ``(points, integers)``."""
        return self._encoding.vectors_of(sketch, decisions)

    def latent_space(self, sketch: int, seen: Sequence[Point]) -> LatentSpace:
        """The points of a sketch in bulk; `seen` are its points that replays have realized."""
        points = np.array([self.start(sketch), *seen], dtype=np.int64)
        insts = self._traces[sketch].insts
        axes = []
        for decision in self.sketches[sketch].decisions:
            own = points[:, decision.start : decision.start + decision.length]
            values = COLUMNS[decision.kind.name].values(insts[decision.inst], own)
            axes.append(LatentAxis(decision.start, values))
        return LatentSpace(axes)
