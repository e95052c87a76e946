# SPDX-License-Identifier: Apache-2.0
"""Converts a trace's sampled decisions to a point and back, and finds their legal values.

Replaying a trace makes new instruction objects, so a decision is identified by the position of its
instruction in ``trace.insts``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.schedule import Instruction

from .candidates import History, Measured, Replayer
from .decision_kinds import (
    COMPUTE_LOCATION,
    DECISION_KINDS,
    PARALLEL_EXTENT,
    DecisionKind,
    LegalValues,
    TraceParts,
)
from .neighborhood import Neighborhood, Point

SpacePoint = tuple[int, Point]
"""The index of a sketch, and the values of its decisions."""

_BEYOND_ALL_LOOPS = 1 << 20
"""A compute location that no loop nest has: TVM realizes the innermost legal one in its place."""


@dataclass(frozen=True)
class Decision:
    """One decision of a sketch, made by the instruction ``trace.insts[inst]``.

    It takes ``length`` integers of a point from ``start`` on: one per position of a tile, else 1.
    """

    inst: int
    kind: DecisionKind
    start: int
    length: int

    def value(self, point: Point) -> Point:
        """The value of this decision in a point."""
        return point[self.start : self.start + self.length]

    def replace(self, point: Point, value: Point) -> Point:
        """A point with another value of this decision."""
        return (*point[: self.start], *value, *point[self.start + self.length :])


def _search_insts(trace: Trace) -> Iterator[tuple[int, Instruction]]:
    """The instructions before the postprocessors, with their positions."""
    for position, inst in enumerate(trace.insts):
        if inst.kind.name == "EnterPostproc":
            return
        yield position, inst


@dataclass(frozen=True)
class Sketch:
    """The kinds, inputs and attributes of the instructions that a design space's traces share."""

    key: tuple[str, ...]
    decisions: tuple[Decision, ...]

    @staticmethod
    def from_trace(trace: Trace) -> "Sketch":
        """Read the sketch of a trace that has all its decisions."""
        key, decisions, start = [], [], 0
        made: dict[object, int] = {}
        for position, inst in _search_insts(trace):
            kind = DECISION_KINDS.get(inst.kind.name)
            value = None if kind is None else kind.read(trace, inst)
            fixed = list(inst.inputs)
            if kind is not None and value is not None:
                fixed = list(kind.fixed_inputs(inst))
                decisions.append(Decision(position, kind, start, len(value)))
                start += len(value)
            # Instructions of one kind may work on different blocks and loops.
            inputs = [made.get(argument, _text(argument)) for argument in fixed]
            key.append(f"{inst.kind.name}{inputs}{[str(attr) for attr in inst.attrs]}")
            for output in inst.outputs:
                made[output] = len(made)
        return Sketch(tuple(key), tuple(decisions))

    def read(self, trace: Trace) -> Point:
        """The point of a trace of this sketch."""
        point: Point = ()
        for decision in self.decisions:
            point += decision.kind.read(trace, trace.insts[decision.inst]) or ()
        return point

    def write(self, trace: Trace, point: Point) -> Trace:
        """The trace of a point, without postprocessors. TVM repairs illegal decisions on replay."""
        insts = [inst for _, inst in _search_insts(trace)]
        sampled = trace.decisions
        parts = TraceParts(insts, {inst: sampled[inst] for inst in insts if inst in sampled})
        for decision in self.decisions:
            decision.kind.write(parts, decision.inst, decision.value(point))
        return Trace(parts.insts, parts.decisions)

    def neighborhood(
        self, trace: Trace, legal_values: Callable[[Decision], LegalValues]
    ) -> Neighborhood:
        """The "adjacent" neighborhood of a replayed trace of this sketch."""
        return Neighborhood(
            tuple(
                one.kind.axis(one.start, one.length, trace.insts[one.inst], legal_values(one))
                for one in self.decisions
            )
        )


def _text(argument: object) -> str:
    """An argument as text; a database reads ``True`` as 1."""
    return str(int(argument) if isinstance(argument, bool) else argument)


class DesignSpaces:
    """The points of a task's design spaces, given a trace of each with all its decisions."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = [trace.simplified(remove_postproc=True) for trace in traces]
        self.sketches = [Sketch.from_trace(trace) for trace in self._traces]

    def find(self, trace: Trace) -> SpacePoint | None:
        """The point of a trace; None for a trace of another design space."""
        trace = trace.simplified(remove_postproc=True)
        sketch = Sketch.from_trace(trace)
        if sketch not in self.sketches:
            return None
        return self.sketches.index(sketch), sketch.read(trace)

    def trace(self, point: SpacePoint) -> Trace:
        """The trace of a point, without postprocessors."""
        sketch, decisions = point
        return self.sketches[sketch].write(self._traces[sketch], decisions)

    def best(self, history: History) -> tuple[Measured, SpacePoint] | None:
        """The fastest schedule that is a point of the design spaces; None before there is one."""
        # A database may have faster schedules from other schedule rules.
        for measured in history.ranking():
            point = self.find(measured.trace)
            if point is not None:
                return measured, point
        return None


def largest_parallel_extent(traces: Iterable[Trace]) -> int:
    """The largest parallel extent that the traces annotate, at least 1; see ``PARALLEL``."""
    extents = (
        PARALLEL_EXTENT.read(trace, inst)
        for trace in traces
        for _, inst in _search_insts(trace)
        if inst.kind.name == PARALLEL_EXTENT.name
    )
    return max((extent[0] for extent in extents if extent is not None), default=1)


class Prober:
    """Finds legal compute locations, and distinct parallel extents up to a limit of at least 1."""

    def __init__(self, replayer: Replayer, parallel_limit: int) -> None:
        self._replayer = replayer
        self._parallel_limit = parallel_limit

    def neighborhood(self, sketch: Sketch, trace: Trace) -> Neighborhood:
        """The neighborhood of a replayed trace of a sketch."""
        with Profiler.timeit("Droplet/Replay"):
            locations = self.compute_locations(sketch, trace)

        def legal_values(decision: Decision) -> LegalValues:
            point = sketch.read(trace)
            return LegalValues(
                lambda: locations[decision.inst],
                lambda: self.parallel_extents(sketch, trace, point, decision),
            )

        return sketch.neighborhood(trace, legal_values)

    def compute_locations(self, sketch: Sketch, trace: Trace) -> dict[int, tuple[int, ...]]:
        """The legal compute locations of each ``SampleComputeLocation``, by position.

        TVM replaces an illegal location by the legal one before it, and sampling changes no loop.
        So a replay samples each location from the innermost one outward, and reads it back.
        """
        positions = [d.inst for d in sketch.decisions if d.kind == COMPUTE_LOCATION]
        if not positions:
            return {}
        probe = self._replayer.new_schedule()
        legal: list[tuple[int, ...]] = []

        def enumerate_locations(inst, inputs, _attrs, decision):  # type: ignore[no-untyped-def]
            if inst.kind.name == COMPUTE_LOCATION.name:
                found: list[int] = []
                wanted = _BEYOND_ALL_LOOPS
                while True:
                    probe.sample_compute_location(inputs[0], decision=wanted)
                    realized = int(probe.trace.get_decision(probe.trace.insts[-1]))
                    if found and realized >= found[-1]:
                        break
                    found.append(realized)
                    wanted = realized - 1
                legal.append(tuple(reversed(found)))
            return decision

        trace.apply_to_schedule(probe, remove_postproc=True, decision_provider=enumerate_locations)
        return dict(zip(positions, legal, strict=True))

    def parallel_extents(
        self, sketch: Sketch, trace: Trace, point: Point, decision: Decision
    ) -> tuple[int, ...]:
        """Parallel extents that give distinct modules, ascending, including the present one."""

        def module(extent: int) -> int | None:
            candidate = self._replayer.replay(
                sketch.write(trace, decision.replace(point, (extent,)))
            )
            return candidate.module if candidate else None

        (present,) = decision.value(point)
        modules = _bisect(module, 1, max(self._parallel_limit, present))
        distinct = {modules.get(present, module(present)): present}
        for extent, found in sorted(modules.items()):
            if found is not None:
                distinct.setdefault(found, extent)
        return tuple(sorted(distinct.values()))


def _bisect(module: Callable[[int], int | None], low: int, high: int) -> dict[int, int | None]:
    """Extents between two bounds with their modules, at least one for each distinct module.

    A larger extent never fuses fewer loops. So if both ends of an interval give one module, every
    extent between them gives it too.
    """
    found = {extent: module(extent) for extent in {low, high}}
    intervals = [(low, high)]
    while intervals:
        low, high = intervals.pop()
        middle = (low + high) // 2
        if middle > low and found[low] != found[high]:
            found[middle] = module(middle)
            intervals += [(low, middle), (middle, high)]
    return found
