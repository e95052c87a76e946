# SPDX-License-Identifier: Apache-2.0
"""The kinds of decisions that a trace samples: one class each.

A kind says how a decision is read from a trace and written back, and which values it can take.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from tvm.s_tir import Trace
from tvm.s_tir.schedule import Instruction
from tvm.tirx import IntImm

from .neighborhood import Axis, ChoiceAxis, OrderedAxis, Point, TileAxis

PARALLEL = "meta_schedule.parallel"
"""The annotation whose constant TVM's ``MutateParallel`` changes: a decision in all but name."""


class TraceParts(NamedTuple):
    """The instructions of a trace under construction, and their sampled decisions."""

    insts: list[Instruction]
    decisions: dict[Instruction, Any]


class LegalValues(NamedTuple):
    """Finds the legal values of one decision, ascending, by replays.

    ``parallel_extents``: the extents that give distinct modules.
    """

    compute_locations: Callable[[], tuple[int, ...]]
    parallel_extents: Callable[[], tuple[int, ...]]


@dataclass(frozen=True)
class DecisionKind(ABC):
    """One kind of decision, by the name of its instruction kind; one sampled integer by default."""

    name: str

    def read(self, trace: Trace, inst: Instruction) -> Point | None:
        """The decision made on an instruction of this kind; None where nothing is decided."""
        return (int(trace.decisions[inst]),)

    def write(self, parts: TraceParts, position: int, value: Point) -> None:
        """Set the decision of the instruction at ``position`` in the parts of a new trace."""
        parts.decisions[parts.insts[position]] = value[0]

    def fixed_inputs(self, inst: Instruction) -> Sequence[Any]:
        """The inputs of the instruction that are not part of the decision."""
        return list(inst.inputs)

    @abstractmethod
    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        """The coordinate of a decision whose value begins at ``start`` in a point."""


@dataclass(frozen=True)
class PerfectTile(DecisionKind):
    """``SamplePerfectTile``: a factorization of a loop's extent."""

    name: str = "SamplePerfectTile"

    def read(self, trace: Trace, inst: Instruction) -> Point | None:
        tile = tuple(int(factor) for factor in trace.decisions[inst])
        # TVM writes -1 for the outermost factor of a loop of unknown extent.
        return tile if tile[0] > 0 else None

    def write(self, parts: TraceParts, position: int, value: Point) -> None:
        parts.decisions[parts.insts[position]] = list(value)

    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        return TileAxis(start, length, self.max_innermost_factor(inst))

    def max_innermost_factor(self, inst: Instruction) -> int:
        """The limit of the innermost factor; -1 for none."""
        return int(inst.attrs[1])


@dataclass(frozen=True)
class Categorical(DecisionKind):
    """``SampleCategorical``: an index into a list of candidates."""

    name: str = "SampleCategorical"

    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        # Sorted candidates are stepped through in order; unsorted ones are chosen freely.
        candidates = [int(candidate) for candidate in inst.attrs[0]]
        ascending = all(a < b for a, b in pairwise(candidates))
        descending = all(a > b for a, b in pairwise(candidates))
        if ascending or descending:
            return OrderedAxis(start, tuple(range(len(candidates))))
        return ChoiceAxis(start, len(candidates))


@dataclass(frozen=True)
class ComputeLocation(DecisionKind):
    """``SampleComputeLocation``: the loop that a block is computed at."""

    name: str = "SampleComputeLocation"

    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        return OrderedAxis(start, legal.compute_locations())


@dataclass(frozen=True)
class ParallelExtent(DecisionKind):
    """The constant of a parallel annotation, which ``MutateParallel`` changes."""

    name: str = "Annotate"

    def read(self, trace: Trace, inst: Instruction) -> Point | None:
        if str(inst.attrs[0]) != PARALLEL:
            return None
        value = inst.inputs[1]
        return (int(value),) if isinstance(value, int | IntImm) else None

    def write(self, parts: TraceParts, position: int, value: Point) -> None:
        inst = parts.insts[position]
        parts.insts[position] = Instruction(
            inst.kind, [inst.inputs[0], IntImm("int32", value[0])], inst.attrs, inst.outputs
        )

    def fixed_inputs(self, inst: Instruction) -> Sequence[Any]:
        return list(inst.inputs)[:1]

    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        return OrderedAxis(start, legal.parallel_extents())


PERFECT_TILE = PerfectTile()
CATEGORICAL = Categorical()
COMPUTE_LOCATION = ComputeLocation()
PARALLEL_EXTENT = ParallelExtent()

DECISION_KINDS: dict[str, DecisionKind] = {
    kind.name: kind for kind in (PERFECT_TILE, CATEGORICAL, COMPUTE_LOCATION, PARALLEL_EXTENT)
}
"""The kinds by name of the instruction kind. ``SamplePartitionedTile`` is missing, because no
schedule rule for a CPU or CUDA samples it."""
