# SPDX-License-Identifier: Apache-2.0
"""A workload's design space: its points, and the candidates that TVM makes from them."""

import random

from tvm.ir import IRModule
from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule import TuneContext

from ..cost_model.draft.gpu.gpu_limits import GpuLimits
from ..search_strategy.candidates import ScreenedReplayer
from ..search_strategy.design_spaces import EncodedSpaces
from ..search_strategy.drafting import LaunchMask
from ..search_strategy.published.candidates import Candidate
from ..search_strategy.published.decision_kinds import CATEGORICAL, PERFECT_TILE
from ..search_strategy.published.decisions import Sketch, SpacePoint
from ..search_strategy.published.neighborhood import Point
from .definition import context_of
from .space import DecisionLayout, MeasuredPoint, SketchLayout, Space, SpaceError

CHECKED_POINTS = 8
"""Approximate number of points to replay to check that this TVM makes the same modules."""


class DesignSpace:
    """The sketches of a context's design space, and replay of points in them.

    ``places``: the encoded spaces of the distinct sketches. ``replayer``: replays traces and runs
    the context's postprocessors.
    """

    def __init__(self, context: TuneContext, seed: int = 0) -> None:
        distinct: dict[Sketch, Trace] = {}
        for schedule in context.generate_design_space():
            distinct.setdefault(Sketch.from_trace(schedule.trace), schedule.trace)
        self.places = EncodedSpaces(list(distinct.values()))
        mask = LaunchMask(self.places)
        checks = [mask, *context.space_generator.postprocs]
        self.replayer = ScreenedReplayer(context.mod, checks, random.Random(seed))
        if GpuLimits.are_told_by(context.target):
            # A GPU can launch about one of twenty schedules that TVM's own sampling draws.
            mask.draft = GpuLimits.of(context.target).begin(self.places, self.replayer)

    @staticmethod
    def of(space: Space) -> "DesignSpace":
        """The design space of a measured space."""
        return DesignSpace(context_of(space))

    @property
    def sketches(self) -> list[Sketch]:
        """The distinct sketches."""
        return self.places.sketches

    def start(self, sketch: int) -> Point:
        """The decisions with which a sketch was generated."""
        return self.places.start(sketch)

    def trace(self, place: SpacePoint) -> Trace:
        """The trace of a point, without postprocessors."""
        return self.places.trace(place)

    def read(self, sketch: int, trace: Trace) -> Point:
        """Read the decisions of a sketch from a trace with or without postprocessors."""
        return self.sketches[sketch].read(trace.simplified(remove_postproc=True))

    def realize(self, place: SpacePoint) -> Candidate | None:
        """Replay a point; None if a primitive or a postprocessor rejects it."""
        return self.replayer.replay(self.trace(place))

    def module(self, place: SpacePoint) -> IRModule:
        """The scheduled module of a point that has replayed before."""
        candidate = self.realize(place)
        if candidate is None:
            raise ValueError(f"point {place} does not replay, and it did before")
        return candidate.schedule.mod

    def draw(self, sketch: int) -> Candidate | None:
        """Let TVM sample all decisions of a sketch; None if they are rejected."""
        insts = self.trace((sketch, self.start(sketch))).insts
        return self.replayer.replay(Trace(insts, {}))

    def layout(self, sketch: int) -> SketchLayout:
        """The decisions of a sketch and their limits, as data."""
        insts = self.trace((sketch, self.start(sketch))).insts
        return tuple(
            DecisionLayout(
                decision.kind.name,
                decision.start,
                decision.length,
                int(insts[decision.inst].attrs[1]) if decision.kind == PERFECT_TILE else -1,
                tuple(map(float, insts[decision.inst].attrs[0]))
                if decision.kind == CATEGORICAL
                else (),
            )
            for decision in self.sketches[sketch].decisions
        )

    def layouts(self) -> tuple[SketchLayout, ...]:
        """The layout of each sketch."""
        return tuple(map(self.layout, range(len(self.sketches))))


def check_modules(space: Space) -> None:
    """Check that this TVM reproduces the measured modules of a space.

    Raises ``SpaceError`` if the module of a replayed point has another structural hash.
    """
    design_space = DesignSpace.of(space)
    points = [point for point in space.points if point.module is not None]
    step = max(1, len(points) // CHECKED_POINTS)
    for point in points[::step]:
        measured_candidate(space, point, design_space)


def measured_candidate(space: Space, point: MeasuredPoint, design_space: DesignSpace) -> Candidate:
    """Replay a point that has a module. Raises ``SpaceError`` if it makes another module here."""
    candidate = design_space.realize((point.sketch, point.decisions))
    expected = space.modules[point.module or 0].structural_hash
    if candidate is None or candidate.module != expected:
        raise SpaceError(
            f"space {space.name} was measured with {dict(space.versions)}, and the versions "
            f"installed here make another module of its point {point.decisions}: build the "
            "space again, or install those versions"
        )
    return candidate
