# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""A trace's sampled decisions as a point, and back.

Replaying a trace makes new instruction objects, so a decision is named by the position of its
instruction in ``trace.insts``.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tvm.s_tir import Trace
from tvm.s_tir.schedule import Instruction

from .decision_kinds import DECISION_KINDS, PARALLEL_EXTENT, DecisionKind, LegalValues, TraceParts
from .neighbourhood import Neighbourhood, Point


@dataclass(frozen=True)
class Decision:
    """One decision of a sketch, and its position in a point.

    Parameters
    ----------
    inst : int
        The position of its instruction in ``trace.insts``.
    kind : DecisionKind
        The kind of the decision.
    start : int
        The index of its first integer in a point.
    length : int
        The number of integers: one for each position of a tile, else 1.
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

    def __str__(self) -> str:
        """The kind and the position, as in ``"SamplePerfectTile#7"``."""
        return f"{self.kind.name}#{self.inst}"


def _search_insts(trace: Trace) -> Iterator[tuple[int, Instruction]]:
    """The instructions before those of the postprocessors, with their positions."""
    for position, inst in enumerate(trace.insts):
        if inst.kind.name == "EnterPostproc":
            return
        yield position, inst


@dataclass(frozen=True)
class Sketch:
    """The part that the traces of one design space share: everything but the decisions.

    Parameters
    ----------
    key : tuple[str, ...]
        The kinds, inputs and attributes of the instructions.
    decisions : tuple[Decision, ...]
        The decisions, in the order of the instructions.
    """

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
            inputs = [made.get(argument, str(argument)) for argument in fixed]
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
        """The trace of this sketch with the decisions of a point, without postprocessors.

        TVM repairs illegal decisions during replay: read the realised ones back afterwards.
        """
        insts = [inst for _, inst in _search_insts(trace)]
        sampled = trace.decisions
        parts = TraceParts(insts, {inst: sampled[inst] for inst in insts if inst in sampled})
        for decision in self.decisions:
            decision.kind.write(parts, decision.inst, decision.value(point))
        return Trace(parts.insts, parts.decisions)

    def neighbourhood(
        self, trace: Trace, legal_values: Callable[[Decision], LegalValues]
    ) -> Neighbourhood:
        """The "adjacent" neighbourhood of a trace of this sketch.

        Parameters
        ----------
        trace : Trace
            A replayed trace.
        legal_values : Callable[[Decision], LegalValues]
            Finds the legal values of a decision that only a replay can tell.
        """
        return Neighbourhood(
            tuple(
                decision.kind.axis(
                    decision.start,
                    decision.length,
                    trace.insts[decision.inst],
                    legal_values(decision),
                )
                for decision in self.decisions
            )
        )

    def describe(self, point: Point) -> str:
        """The decisions of a point, for the log: ``"SamplePerfectTile#7 [1, 4], ..."``."""
        described = (f"{decision} {list(decision.value(point))}" for decision in self.decisions)
        return ", ".join(described) or "no decision"

    def describe_change(self, before: Point, after: Point) -> str:
        """The decisions that differ: ``"SamplePerfectTile#7 [1, 4] -> [2, 2]"``."""
        changes = (
            f"{decision} {list(decision.value(before))} -> {list(decision.value(after))}"
            for decision in self.decisions
            if decision.value(before) != decision.value(after)
        )
        return ", ".join(changes) or "no decision"


def largest_parallel_extent(traces: Iterable[Trace]) -> int:
    """The largest parallel extent that the traces annotate: the limit of ``MutateParallel``.

    Returns
    -------
    extent : int
        At least 1.
    """
    extents = (
        PARALLEL_EXTENT.read(trace, inst)
        for trace in traces
        for _, inst in _search_insts(trace)
        if inst.kind.name == PARALLEL_EXTENT.name
    )
    return max((extent[0] for extent in extents if extent is not None), default=1)
