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
"""The loop nests of a key: what a schedule looks like, as a function of its decisions.

A key is a sketch with the realised values of its compute locations. All schedules of a key have the
same loops, blocks and accesses; only the extents of the loops differ, and they follow from the
decisions:

- a loop that ``Split`` makes has an entry of a decision as its extent, and the trace says which;
- a loop that ``ComputeAt`` or ``ReverseComputeAt`` makes is as long as the region that the other
  block touches there, but no longer than the axis (``compute_at.cc``, ``CalculateBlockVarDomain``);
- any other loop has the extent of its axis.

So one replay without postprocessors tells all about a key. What this does not understand raises
``NotUnderstood``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import numpy as np

from tvm import tirx
from tvm.s_tir import Schedule

from ..cost_model.features.loop_context import scheduled_blocks
from ..cost_model.features.operations import operations
from ..search_strategy.decisions import Sketch
from .extents import Interval, Intervals, Node, Tape
from .index_intervals import index_interval, linear_coefficient

_REDUCE = int(tirx.IterVar.CommReduce)
_SPLIT, _TILE = "Split", "SamplePerfectTile"
_MOVES = {"ComputeAt": False, "ReverseComputeAt": True}
_HARMLESS = frozenset(
    {
        "Annotate",
        "CacheRead",
        "CacheWrite",
        "ComputeInline",
        "GetConsumers",
        "GetLoops",
        "GetProducers",
        "GetSBlock",
        "Reorder",
        "ReverseComputeInline",
        "SampleCategorical",
        "SampleComputeLocation",
        "SamplePerfectTile",
        "Unannotate",
    }
)
"""Instructions that make no loops, or none but those of whole axes."""


class NotUnderstood(Exception):
    """A schedule of which this module does not know what its loops depend on."""


@dataclass(frozen=True)
class NestAccess:
    """A region of a buffer that a block reads or writes.

    Parameters
    ----------
    buffer : str
        The buffer's name.
    is_write : bool
        Whether the block writes it.
    itemsize : int
        The bytes of an element.
    touched, runs : tuple[Node, ...]
        The bytes that each loop with the loops within it touches, and how many contiguous bytes
        among them, the innermost loop first; see ``loop_context.Access``.
    strides : tuple[Node, ...]
        The elements that one step of each loop moves along the buffer, the innermost loop first; 0
        where the region does not depend on it.
    """

    buffer: str
    is_write: bool
    itemsize: int
    touched: tuple[Node, ...]
    runs: tuple[Node, ...]
    strides: tuple[Node, ...]


@dataclass(frozen=True)
class Nest:
    """The loops around one block that has no block within it.

    Parameters
    ----------
    block : str
        The block's name.
    loops : tuple[int, ...]
        The number of each loop in the module, the innermost first: nests may share outer loops.
    extents : tuple[Node, ...]
        The iterations of each.
    reduces : tuple[bool, ...]
        Whether each runs over an axis that is reduced.
    single : tuple[bool, ...]
        Whether the body of each is one statement.
    operations : np.ndarray
        The operations of one execution of the block; see ``operations.operations``.
    accesses : tuple[NestAccess, ...]
        The writes of the block, then its reads.
    """

    block: str
    loops: tuple[int, ...]
    extents: tuple[Node, ...]
    reduces: tuple[bool, ...]
    single: tuple[bool, ...]
    operations: np.ndarray
    accesses: tuple[NestAccess, ...]


@dataclass(frozen=True)
class Skeleton:
    """The loop nests of a key.

    Parameters
    ----------
    tape : Tape
        Evaluates the nodes of the nests for points of the key's sketch.
    nests : tuple[Nest, ...]
        In the order of the module.
    """

    tape: Tape
    nests: tuple[Nest, ...]


def compile_skeleton(sketch: Sketch, schedule: Schedule) -> Skeleton:
    """Read the loop nests of a key out of one of its schedules.

    Parameters
    ----------
    sketch : Sketch
        The sketch of the schedule.
    schedule : Schedule
        A replayed schedule, without postprocessors.

    Raises
    ------
    NotUnderstood
        Says what makes a loop of an extent that is not known to follow from the decisions.
    """
    tape = Tape()
    reader = _Reader(sketch, schedule, tape)
    numbers = {id(loop): n for n, loop in enumerate(reader.loops)}
    nests = []
    for block in reader.blocks:
        inner_first = block.loops[::-1]
        nests.append(
            Nest(
                block.name,
                tuple(numbers[id(loop)] for loop in inner_first),
                tuple(reader.extent(loop) for loop in inner_first),
                tuple(reader.reduces(loop) for loop in inner_first),
                tuple(reader.is_single(loop) for loop in inner_first),
                operations(block.realize.block.body),
                tuple(reader.accesses(block)),
            )
        )
    return Skeleton(tape, tuple(nests))


@dataclass
class _Block:
    """A block that has no block within it.

    Parameters
    ----------
    realize : Any
        TVM's ``SBlockRealize``.
    loops : tuple[_Loop, ...]
        The loops around it, the outermost first.
    """

    realize: Any
    loops: "tuple[_Loop, ...]"

    @cached_property
    def name(self) -> str:
        return str(self.realize.block.name_hint)

    @cached_property
    def axes(self) -> list[Any]:
        return list(self.realize.block.iter_vars)

    @cached_property
    def variables(self) -> list[Any]:
        return [axis.var for axis in self.axes]

    @cached_property
    def lengths(self) -> list[int]:
        return [_integer(axis.dom.extent) for axis in self.axes]

    @cached_property
    def writes(self) -> list[Any]:
        return list(self.realize.block.writes)

    @cached_property
    def reads(self) -> list[Any]:
        return list(self.realize.block.reads)


@dataclass
class _Loop:
    """A loop of the module."""

    variable: Any
    extent: int


@dataclass
class _Region:
    """The loops that moving a block to a loop of another one made, one for each of its axes.

    Parameters
    ----------
    block : _Block
        The block that was moved.
    depth : int
        The loops around it before its own.
    required : list[tuple[_Block, Any, list[int | None]]]
        The blocks at this place that read what it writes, or write what it reads; the region; and
        the dimension of it that each axis is, None for one that is reduced, whose loops are whole.
    """

    block: _Block
    depth: int
    required: "list[tuple[_Block, Any, list[int | None]]]"


@dataclass
class _Reader:
    sketch: Sketch
    schedule: Schedule
    tape: Tape
    loops: list[_Loop] = field(default_factory=list)
    blocks: list[_Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._intervals = Intervals(self.tape)
        # Positions of decisions are those of a trace without what nothing uses.
        self._insts = list(self.schedule.trace.simplified(remove_postproc=True).insts)
        self._read_tree()
        self._extents: dict[int, Node] = {}
        self._chains: dict[str, list[list[_Loop]]] = {}
        self._regions: dict[str, _Region] = {}
        self._counts: dict[tuple[str, int, int], Node] = {}
        self._read_trace()
        for block in self.blocks:
            self._explain(block)

    # The module.

    def _read_tree(self) -> None:
        loops: list[tuple[Any, _Loop]] = []

        def ours(theirs: Any) -> _Loop:
            for known, loop in loops:
                if known.same_as(theirs):
                    return loop
            loop = _Loop(theirs.loop_var, _integer(theirs.extent))
            loops.append((theirs, loop))
            return loop

        for realize, around in scheduled_blocks(self.schedule.mod):
            self.blocks.append(_Block(realize, tuple(map(ours, around))))
        self.loops = [loop for _, loop in loops]

    def _find(self, loop_rv: Any) -> _Loop | None:
        """The loop of a variable of the trace; None where it was split further."""
        try:
            variable = self.schedule.get(loop_rv).loop_var
        except Exception:  # TVM raises errors of many types for what is gone.
            return None
        return next((loop for loop in self.loops if loop.variable.same_as(variable)), None)

    # The trace.

    def _read_trace(self) -> None:
        self._moved: set[str] = set()
        entries: dict[Any, Node] = {}
        parts: dict[Any, list[Any]] = {}
        axes: list[list[Any]] = []
        positions = {decision.inst: decision for decision in self.sketch.decisions}
        for position, inst in enumerate(self._insts):
            kind = inst.kind.name
            if kind == "EnterPostproc":
                break
            if kind == _TILE and position in positions:
                start = positions[position].start
                for index, output in enumerate(inst.outputs):
                    entries[output] = self.tape.entry(start + index)
            elif kind == _SPLIT:
                loop, *factors = inst.inputs
                for output, factor in zip(inst.outputs, factors, strict=True):
                    self._note_split(output, factor, entries)
                parts[loop] = list(inst.outputs)
            elif kind == "GetLoops":
                axes.append(list(inst.outputs))
            elif kind in _MOVES:
                self._moved.add(self._block_name(inst.inputs[0]))
            elif kind not in _HARMLESS:
                raise NotUnderstood(f"the instruction {kind}")
        for outputs in axes:
            self._note_chains(outputs, parts)

    def _note_split(self, output: Any, factor: Any, entries: Mapping[Any, Node]) -> None:
        loop = self._find(output)
        if isinstance(factor, int | tirx.IntImm):
            node = self.tape.constant(int(factor))
        elif factor in entries:
            node = entries[factor]
        else:
            raise NotUnderstood("a Split by what is no tile")
        if loop is not None:
            self._extents[id(loop)] = node

    def _note_chains(self, outputs: Sequence[Any], parts: Mapping[Any, list[Any]]) -> None:
        """The loops that each axis of a block was split into."""
        if not any(output in parts for output in outputs):
            return
        chains = [[self._find(loop) for loop in _leaves(output, parts)] for output in outputs]
        found = [[loop for loop in chain if loop is not None] for chain in chains]
        if found != chains:
            raise NotUnderstood("a tiled loop that is gone")
        for chain in found:
            if len(chain) == 1:  # An axis that was not split.
                self._extents.setdefault(id(chain[0]), self.tape.constant(chain[0].extent))
        inner = found[-1][-1]
        owner = [block for block in self.blocks if inner in block.loops]
        tiled = [block for block in owner if len(block.axes) == len(outputs)]
        for block in tiled:
            if all(loop in block.loops for chain in found for loop in chain):
                self._chains[block.name] = found

    def _block_name(self, block_rv: Any) -> str:
        try:
            return str(self.schedule.get(block_rv).name_hint)
        except Exception:  # It was inlined afterwards.
            return ""

    # What each block's axes run over.

    def _explain(self, block: _Block) -> None:
        if block.name in self._chains:
            return
        own = block.loops[-len(block.axes) :] if block.axes else ()
        if len(own) != len(block.axes):
            raise NotUnderstood(f"the loops of {block.name}")
        # A block that is moved to no loop keeps those of its whole axes.
        if block.name not in self._moved or len(block.loops) == len(own):
            if len(block.loops) != len(own):
                raise NotUnderstood(f"the loops of {block.name}")
            for loop, length in zip(own, block.lengths, strict=True):
                if loop.extent != length:
                    raise NotUnderstood(f"a loop of {block.name}")
                self._extents[id(loop)] = self.tape.constant(length)
            self._chains[block.name] = [[loop] for loop in own]
            return
        self._regions[block.name] = self._region(block, len(block.loops) - len(own))

    def _region(self, block: _Block, depth: int) -> _Region:
        around = block.loops[:depth]
        others = [
            other for other in self.blocks if other is not block and other.loops[:depth] == around
        ]
        for ours, is_consumer in ((block.writes, True), (block.reads, False)):
            required = [
                (other, theirs, _dimensions(block, own))
                for own in ours
                for other in others
                for theirs in (other.reads if is_consumer else other.writes)
                if theirs.source.same_as(own.source)
            ]
            if required:
                return _Region(block, depth, required)
        raise NotUnderstood(f"what {block.name} was moved to")

    def extent(self, loop: _Loop) -> Node:
        """The extent of a loop."""
        if id(loop) not in self._extents:
            for region in self._regions.values():
                own = region.block.loops[region.depth :]
                for axis, other in enumerate(own):
                    if other is loop:
                        self._extents[id(loop)] = self._needed(region, axis, region.depth)
        if id(loop) not in self._extents:
            raise NotUnderstood(f"the loop {loop.variable.name}")
        return self._extents[id(loop)]

    def _needed(self, region: _Region, axis: int, depth: int) -> Node:
        """How many values of an axis are needed while the loops deeper than `depth` turn."""
        tape = self.tape
        counts = []
        for other, needed, dimensions in region.required:
            dimension = dimensions[axis]
            if dimension is None:
                return tape.constant(region.block.lengths[axis])
            part = needed.region[dimension]
            interval = self.index(other, part.min, depth)
            counts.append(
                tape.add(self._intervals.span(interval), tape.constant(_integer(part.extent)))
            )
        count = counts[0]
        for another in counts[1:]:
            count = tape.greatest(count, another)
        return tape.least(count, tape.constant(region.block.lengths[axis]))

    def count(self, block: _Block, axis: int, depth: int) -> Node:
        """How many values an axis of a block takes while its loops deeper than `depth` turn."""
        key = (block.name, axis, depth)
        if key not in self._counts:
            self._counts[key] = self._count(block, axis, depth)
        return self._counts[key]

    def _count(self, block: _Block, axis: int, depth: int) -> Node:
        tape = self.tape
        if block.name in self._regions:
            region = self._regions[block.name]
            if depth < region.depth:
                return self._needed(region, axis, depth)
            own = block.loops[region.depth + axis]
            within = own in block.loops[depth:]
            return self.extent(own) if within else tape.constant(1)
        chain = self._chains[block.name][axis]
        one = tape.constant(1)
        terms = [one]
        suffix = one
        inside = block.loops[depth:]
        all_within = True
        for loop in reversed(chain):
            extent = self.extent(loop)
            if loop in inside:
                if all_within:
                    terms = [tape.multiply(suffix, extent)]
                else:
                    terms.append(tape.multiply(tape.subtract(extent, one), suffix))
            else:
                all_within = False
            suffix = tape.multiply(suffix, extent)
        return tape.sum(terms)

    def index(self, block: _Block, index: Any, depth: int) -> Interval:
        """The values of an index of a block while its loops deeper than `depth` turn."""

        def interval(variable: Any) -> Interval:
            for number, axis in enumerate(block.variables):
                if axis.same_as(variable):
                    return self._intervals.counted(self.count(block, number, depth))
            raise NotUnderstood(f"the variable {variable.name} of {block.name}")

        return index_interval(index, interval, self._intervals)

    def accesses(self, block: _Block) -> Iterable[NestAccess]:
        """The writes of a block, then its reads."""
        for regions, is_write in ((block.writes, True), (block.reads, False)):
            for region in regions:
                yield self._access(block, region, is_write=is_write)

    def _access(self, block: _Block, region: Any, *, is_write: bool) -> NestAccess:
        touched, runs = [], []
        for depth in range(len(block.loops) - 1, -1, -1):
            both = self._touched(block, region, depth)
            touched.append(both[0])
            runs.append(both[1])
        itemsize = int(region.source.dtype.itemsize)
        strides = tuple(self._stride(block, region, loop) for loop in reversed(block.loops))
        return NestAccess(
            str(region.source.name), is_write, itemsize, tuple(touched), tuple(runs), strides
        )

    def _stride(self, block: _Block, region: Any, loop: _Loop) -> Node:
        """What one step of a loop moves; as ``StrideExtractor`` of the postprocessor finds it."""
        tape = self.tape
        within = 1
        for part, length in reversed(list(zip(region.region, region.source.shape, strict=True))):
            steps = [
                tape.multiply(tape.constant(coefficient), step)
                for number, variable in enumerate(block.variables)
                if (coefficient := linear_coefficient(part.min, variable))
                and (step := self._step(block, number, loop)) is not None
            ]
            if steps:
                return tape.multiply(reduce(tape.least, steps), tape.constant(within))
            within *= _integer(length)
        return tape.constant(0)

    def _step(self, block: _Block, axis: int, loop: _Loop) -> Node | None:
        """What one step of a loop adds to an axis; None where it does not turn the axis."""
        if block.name in self._regions:
            region = self._regions[block.name]
            is_own = block.loops[region.depth + axis] is loop
            return self.tape.constant(1) if is_own else None
        chain = self._chains[block.name][axis]
        if loop not in chain:
            return None
        return self.tape.product([self.extent(other) for other in chain[chain.index(loop) + 1 :]])

    def reduces(self, loop: _Loop) -> bool:
        """Whether a loop runs over an axis that is reduced, in any of its blocks."""
        return any(
            int(block.axes[axis].iter_type) == _REDUCE
            for block in self.blocks
            if loop in block.loops
            for axis in range(len(block.axes))
            if self._step(block, axis, loop) is not None
        )

    def is_single(self, loop: _Loop) -> bool:
        """Whether the body of a loop is one statement."""
        children = set()
        for block in self.blocks:
            if loop in block.loops:
                within = block.loops[block.loops.index(loop) + 1 :]
                children.add(id(within[0]) if within else id(block))
        return len(children) == 1

    def _touched(self, block: _Block, region: Any, depth: int) -> tuple[Node, Node]:
        """The bytes of a region that the loops deeper than `depth` touch, and a run of them."""
        tape = self.tape
        touched = run = tape.constant(int(region.source.dtype.itemsize))
        is_whole = tape.constant(1)
        for part, length in reversed(list(zip(region.region, region.source.shape, strict=True))):
            span = self._intervals.span(self.index(block, part.min, depth))
            extent = tape.constant(_integer(part.extent))
            end = tape.constant(_integer(length))
            covered = tape.least(tape.add(span, extent), end)
            touched = tape.multiply(touched, covered)
            # 1 where the dimensions within are not covered whole.
            factor = tape.add(
                tape.multiply(is_whole, covered), tape.subtract(tape.constant(1), is_whole)
            )
            run = tape.multiply(run, factor)
            is_whole = tape.multiply(is_whole, tape.equal(covered, end))
        return touched, run


def _leaves(loop: Any, parts: Mapping[Any, list[Any]]) -> list[Any]:
    """What a loop was split into, and those parts further."""
    if loop not in parts:
        return [loop]
    return [leaf for part in parts[loop] for leaf in _leaves(part, parts)]


def _dimensions(block: _Block, region: Any) -> list[int | None]:
    """The dimension of a block's own region that each of its axes is."""
    starts = [part.min for part in region.region]
    found: list[int | None] = []
    for axis in block.axes:
        matching = [n for n, start in enumerate(starts) if start.same_as(axis.var)]
        if len(matching) != 1 and int(axis.iter_type) != _REDUCE:
            raise NotUnderstood(f"the axis {axis.var.name} of {block.name}")
        found.append(matching[0] if matching else None)
    return found


def _integer(value: Any) -> int:
    if isinstance(value, int | tirx.IntImm):
        return int(value)
    raise NotUnderstood(f"the extent {value}, which is not constant")
