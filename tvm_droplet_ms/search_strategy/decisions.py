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

Replaying a trace makes new instruction objects, so a decision is named by its instruction's
position in ``trace.insts``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tvm.s_tir import Trace
from tvm.s_tir.schedule import Instruction
from tvm.tirx import IntImm

from .neighbourhood import Axis, ChoiceAxis, Neighbourhood, OrderedAxis, Point, TileAxis

PARALLEL = "meta_schedule.parallel"
"""The annotation whose constant TVM's ``MutateParallel`` changes: a decision in all but name."""


@dataclass(frozen=True)
class Decision:
    """One decision of a sketch, and its place in a point.

    Parameters
    ----------
    inst : int
        The position of its instruction in ``trace.insts``.
    kind : str
        The kind of that instruction.
    start : int
        Where its value begins in a point.
    length : int
        How many integers its value has: the positions of a tile, else 1.
    """

    inst: int
    kind: str
    start: int
    length: int

    def of(self, point: Point) -> Point:
        """The value of this decision in a point."""
        return point[self.start : self.start + self.length]


def _search_insts(trace: Trace) -> Iterator[tuple[int, Instruction]]:
    """The instructions before the postprocessors', with their positions."""
    for position, inst in enumerate(trace.insts):
        if inst.kind.name == "EnterPostproc":
            return
        yield position, inst


def _parallel_extent(inst: Instruction) -> int | None:
    """The constant of a parallel annotation; None for any other instruction."""
    if inst.kind.name != "Annotate" or str(inst.attrs[0]) != PARALLEL:
        return None
    value = inst.inputs[1]
    return int(value) if isinstance(value, int | IntImm) else None


def _value(trace: Trace, inst: Instruction) -> Point | None:
    """The decision made on an instruction; None where there is nothing to decide."""
    kind = inst.kind.name
    if kind == "SamplePerfectTile":
        tile = tuple(int(factor) for factor in trace.decisions[inst])
        # TVM writes -1 for the outermost factor of a loop of unknown extent.
        return tile if tile[0] > 0 else None
    if kind in ("SampleCategorical", "SampleComputeLocation"):
        return (int(trace.decisions[inst]),)
    extent = _parallel_extent(inst)
    return None if extent is None else (extent,)


@dataclass(frozen=True)
class Sketch:
    """What the traces of one design space share: everything but the decisions.

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
    def of(trace: Trace) -> "Sketch":
        """Read the sketch of a trace that has all its decisions.

        ``SamplePartitionedTile`` is left as it is: no schedule rule for a CPU or CUDA samples it.
        """
        key, decisions, start = [], [], 0
        made: dict[object, int] = {}
        for position, inst in _search_insts(trace):
            value = _value(trace, inst)
            is_extent = inst.kind.name == "Annotate" and value is not None
            # Instructions of one kind may work on other blocks and loops: those of one level or
            # of another, for one.
            inputs = [
                made.get(one, str(one)) for one in list(inst.inputs)[: 1 if is_extent else None]
            ]
            attrs = [str(attr) for attr in inst.attrs]
            key.append(f"{inst.kind.name}{inputs}{attrs}")
            for output in inst.outputs:
                made[output] = len(made)
            if value is not None:
                decisions.append(Decision(position, inst.kind.name, start, len(value)))
                start += len(value)
        return Sketch(tuple(key), tuple(decisions))

    def read(self, trace: Trace) -> Point:
        """The point of a trace of this sketch."""
        point: Point = ()
        for decision in self.decisions:
            point += _value(trace, trace.insts[decision.inst]) or ()
        return point

    def write(self, trace: Trace, point: Point) -> Trace:
        """The trace of this sketch that has the decisions of a point, without postprocessors.

        The point is what is asked for; what TVM makes of it is read back from the replay.
        """
        insts = [inst for _, inst in _search_insts(trace)]
        made = trace.decisions
        decisions = {inst: made[inst] for inst in insts if inst in made}
        for decision in self.decisions:
            inst = insts[decision.inst]
            value = decision.of(point)
            if decision.kind == "SamplePerfectTile":
                decisions[inst] = list(value)
            elif decision.kind == "Annotate":
                insts[decision.inst] = Instruction(
                    inst.kind, [inst.inputs[0], IntImm("int32", value[0])], inst.attrs, inst.outputs
                )
            else:
                decisions[inst] = value[0]
        return Trace(insts, decisions)

    def neighbourhood(
        self,
        trace: Trace,
        locations: Mapping[int, tuple[int, ...]],
        parallel_extents: Callable[[Decision], tuple[int, ...]],
    ) -> Neighbourhood:
        """The "adjacent" neighbourhood of a trace of this sketch.

        Parameters
        ----------
        trace : Trace
            A replayed trace.
        locations : Mapping[int, tuple[int, ...]]
            The legal values of each ``SampleComputeLocation``, by the instruction's position.
        parallel_extents : Callable[[Decision], tuple[int, ...]]
            The extents of a parallel annotation that give distinct plans, ascending.
        """
        axes: list[Axis] = []
        for decision in self.decisions:
            inst = trace.insts[decision.inst]
            if decision.kind == "SamplePerfectTile":
                axes.append(TileAxis(decision.start, decision.length, int(inst.attrs[1])))
            elif decision.kind == "SampleCategorical":
                candidates = [int(candidate) for candidate in inst.attrs[0]]
                axes.append(_categorical_axis(decision.start, candidates))
            elif decision.kind == "SampleComputeLocation":
                axes.append(OrderedAxis(decision.start, locations[decision.inst]))
            else:
                axes.append(OrderedAxis(decision.start, parallel_extents(decision)))
        return Neighbourhood(tuple(axes))

    def describe(self, point: Point) -> str:
        """The decisions of a point, for the log: ``"SamplePerfectTile#7 [1, 4], ..."``."""
        described = (
            f"{decision.kind}#{decision.inst} {list(decision.of(point))}"
            for decision in self.decisions
        )
        return ", ".join(described) or "no decision"

    def describe_change(self, before: Point, after: Point) -> str:
        """What changed between two points: ``"SamplePerfectTile#7 [1, 4] -> [2, 2]"``."""
        changes = (
            f"{decision.kind}#{decision.inst} "
            f"{list(decision.of(before))} -> {list(decision.of(after))}"
            for decision in self.decisions
            if decision.of(before) != decision.of(after)
        )
        return ", ".join(changes) or "no decision"


def _categorical_axis(slot: int, candidates: list[int]) -> Axis:
    """Neighbouring indices where the candidates are ordered numbers, any index where not."""
    ascending = all(a < b for a, b in pairwise(candidates))
    descending = all(a > b for a, b in pairwise(candidates))
    if ascending or descending:
        return OrderedAxis(slot, tuple(range(len(candidates))))
    return ChoiceAxis(slot, len(candidates))


def largest_parallel_extent(traces: Iterable[Trace]) -> int:
    """The largest parallel extent that the traces annotate: what ``MutateParallel`` stays within.

    Returns
    -------
    extent : int
        At least 1.
    """
    extents = (_parallel_extent(inst) for trace in traces for _, inst in _search_insts(trace))
    return max((extent for extent in extents if extent is not None), default=1)
