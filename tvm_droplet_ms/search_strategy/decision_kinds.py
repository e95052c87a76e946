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
"""The kinds of decisions that a trace samples: one class each.

A kind says how a decision is read from a trace and written back, which values it can take, and how
it is encoded for the surrogate. To support another sampling instruction, add a class here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from tvm.s_tir import Trace
from tvm.s_tir.schedule import Instruction
from tvm.tirx import IntImm

from .factorisations import factorisations
from .neighbourhood import Axis, ChoiceAxis, OrderedAxis, Point, TileAxis

PARALLEL = "meta_schedule.parallel"
"""The annotation whose constant TVM's ``MutateParallel`` changes: a decision in all but name."""


ONE_HOT_COLUMNS = 32
"""Columns of a decision that is no tile. Values that differ by a multiple of this share one."""

ONE_HOT_SCALE = 1.0
"""The value of a column. Two values of a decision lie the square root of 2 as far apart."""


class TraceParts(NamedTuple):
    """The parts of a trace that is being written.

    Attributes
    ----------
    insts : list[Instruction]
        The instructions.
    decisions : dict[Instruction, Any]
        The sampled decisions, by instruction.
    """

    insts: list[Instruction]
    decisions: dict[Instruction, Any]


class LegalValues(Protocol):
    """Legal values of one decision that only a replay can tell."""

    def compute_locations(self) -> tuple[int, ...]:
        """The legal compute locations, ascending."""

    def parallel_extents(self) -> tuple[int, ...]:
        """Parallel extents that give distinct modules, ascending."""


class DecisionKind(Protocol):
    """One kind of decision.

    Attributes
    ----------
    name : str
        The name of the instruction kind in TVM.
    """

    @property
    def name(self) -> str: ...

    def read(self, trace: Trace, inst: Instruction) -> Point | None:
        """The decision made on an instruction of this kind; None where nothing is decided."""

    def write(self, parts: TraceParts, position: int, value: Point) -> None:
        """Set the decision of the instruction at ``position`` in the parts of a new trace."""

    def fixed_inputs(self, inst: Instruction) -> Sequence[Any]:
        """The inputs of the instruction that are not part of the decision."""

    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        """The coordinate of a decision whose value begins at ``start`` in a point."""

    def values(self, inst: Instruction, seen: np.ndarray) -> np.ndarray:
        """Values that the decision may have, given those that it has in some points.

        Parameters
        ----------
        inst : Instruction
            The instruction.
        seen : np.ndarray
            Of shape ``(points, length)``, at least one.

        Returns
        -------
        values : np.ndarray
            Of shape ``(values, length)``.
        """

    def width(self, length: int) -> int:
        """The number of columns that ``encode`` makes of a decision of some integers."""

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Columns for the surrogate, of shape ``(points, columns)``.

        Parameters
        ----------
        values : np.ndarray
            The decision's values, of shape ``(points, length)``.
        """


class _Sampled:
    """A decision that the trace keeps in its map of decisions, as one integer."""

    def read(self, trace: Trace, inst: Instruction) -> Point | None:
        return (int(trace.decisions[inst]),)

    def write(self, parts: TraceParts, position: int, value: Point) -> None:
        parts.decisions[parts.insts[position]] = value[0]

    def fixed_inputs(self, inst: Instruction) -> Sequence[Any]:
        return list(inst.inputs)

    def values(self, inst: Instruction, seen: np.ndarray) -> np.ndarray:
        """Those that were seen: which others are legal, only replays can tell."""
        return np.unique(seen, axis=0)

    def width(self, length: int) -> int:
        return ONE_HOT_COLUMNS

    def encode(self, values: np.ndarray) -> np.ndarray:
        """A column for each value: the loop at a location is another one in every sketch.

        The difference of two locations says nothing of how different their schedules are.
        """
        columns = np.zeros((len(values), ONE_HOT_COLUMNS))
        columns[np.arange(len(values)), values[:, 0].astype(int) % ONE_HOT_COLUMNS] = ONE_HOT_SCALE
        return columns


@dataclass(frozen=True)
class PerfectTile(_Sampled):
    """``SamplePerfectTile``: a factorisation of a loop's extent."""

    name: str = "SamplePerfectTile"

    def read(self, trace: Trace, inst: Instruction) -> Point | None:
        """The tile factors, outermost first."""
        tile = tuple(int(factor) for factor in trace.decisions[inst])
        # TVM writes -1 for the outermost factor of a loop of unknown extent.
        return tile if tile[0] > 0 else None

    def write(self, parts: TraceParts, position: int, value: Point) -> None:
        """Set all tile factors."""
        parts.decisions[parts.insts[position]] = list(value)

    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        """The lattice of factorisations."""
        return TileAxis(start, length, self.max_innermost_factor(inst))

    def max_innermost_factor(self, inst: Instruction) -> int:
        """The limit of the innermost factor; -1 for none."""
        return int(inst.attrs[1])

    def values(self, inst: Instruction, seen: np.ndarray) -> np.ndarray:
        """All factorisations; those that were seen where other decisions determine the extent."""
        extents = np.unique(seen.prod(axis=1))
        if len(extents) > 1:
            return np.unique(seen, axis=0)
        return factorisations(int(extents[0]), seen.shape[1], self.max_innermost_factor(inst))

    def width(self, length: int) -> int:
        """The factors, and the products that are neither a factor nor the extent."""
        return max(1, 2 * length - 2)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Logarithms to base 2 of the factors and of the products of the inner ones.

        The products are the extents that a loop's body touches.
        """
        logarithms = np.log2(np.maximum(values, 1))
        if values.shape[1] == 1:
            return np.asarray(logarithms)
        within = np.cumsum(logarithms[:, ::-1], axis=1)[:, ::-1]
        return np.hstack([logarithms, within[:, 1:-1]])


@dataclass(frozen=True)
class Categorical(_Sampled):
    """``SampleCategorical``: an index into a list of candidates."""

    name: str = "SampleCategorical"

    def values(self, inst: Instruction, seen: np.ndarray) -> np.ndarray:
        """All indices."""
        return np.arange(len(inst.attrs[0]))[:, None]

    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        """Neighbouring indices where the candidates are ordered numbers, else any index."""
        candidates = [int(candidate) for candidate in inst.attrs[0]]
        ascending = all(a < b for a, b in pairwise(candidates))
        descending = all(a > b for a, b in pairwise(candidates))
        if ascending or descending:
            return OrderedAxis(start, tuple(range(len(candidates))))
        return ChoiceAxis(start, len(candidates))


@dataclass(frozen=True)
class ComputeLocation(_Sampled):
    """``SampleComputeLocation``: the loop that a block is computed at."""

    name: str = "SampleComputeLocation"

    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        """The legal locations in their order."""
        return OrderedAxis(start, legal.compute_locations())


@dataclass(frozen=True)
class ParallelExtent:
    """The constant of a parallel annotation, which ``MutateParallel`` changes."""

    name: str = "Annotate"

    def read(self, trace: Trace, inst: Instruction) -> Point | None:
        """The extent; None for any other annotation."""
        if str(inst.attrs[0]) != PARALLEL:
            return None
        value = inst.inputs[1]
        return (int(value),) if isinstance(value, int | IntImm) else None

    def write(self, parts: TraceParts, position: int, value: Point) -> None:
        """Replace the instruction by one with another extent."""
        inst = parts.insts[position]
        parts.insts[position] = Instruction(
            inst.kind, [inst.inputs[0], IntImm("int32", value[0])], inst.attrs, inst.outputs
        )

    def fixed_inputs(self, inst: Instruction) -> Sequence[Any]:
        """The annotated loop or block."""
        return list(inst.inputs)[:1]

    def axis(self, start: int, length: int, inst: Instruction, legal: LegalValues) -> Axis:
        """The distinct parallel extents in their order."""
        return OrderedAxis(start, legal.parallel_extents())

    def values(self, inst: Instruction, seen: np.ndarray) -> np.ndarray:
        """Those that were seen: which others give another module, only replays can tell."""
        return np.unique(seen, axis=0)

    def width(self, length: int) -> int:
        """One column."""
        return 1

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The logarithm to base 2."""
        return np.asarray(np.log2(np.maximum(values, 1)))


PERFECT_TILE = PerfectTile()
CATEGORICAL = Categorical()
COMPUTE_LOCATION = ComputeLocation()
PARALLEL_EXTENT = ParallelExtent()

DECISION_KINDS: dict[str, DecisionKind] = {
    kind.name: kind for kind in (PERFECT_TILE, CATEGORICAL, COMPUTE_LOCATION, PARALLEL_EXTENT)
}
"""By the name of the instruction kind. ``SamplePartitionedTile`` is missing: no schedule rule for a
CPU or CUDA samples it."""
