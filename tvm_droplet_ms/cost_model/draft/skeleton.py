# SPDX-License-Identifier: Apache-2.0
"""The loop nests of a key, as functions of the decisions.

A key is a sketch with the realized values of its compute locations. All schedules of a key have the
same loops, blocks and accesses. Only the extents of the loops differ, and they follow from the
decisions:

- a loop that ``Split`` makes has an entry of a decision as its extent, and the trace says which;
- a loop that ``ComputeAt`` or ``ReverseComputeAt`` makes is as long as the region that the other
  block touches there, but no longer than the axis (``compute_at.cc``, ``CalculateBlockVarDomain``);
- any other loop has the extent of its axis.

So one replay without postprocessors describes all schedules of a key. Other schedules raise
``NotUnderstood``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tvm.s_tir import Schedule

from ...search_strategy.published.decisions import Sketch
from ..features.loop_context import operations
from .axis_origins import REDUCE, AxisOrigins, Region
from .block_tree import (
    Block,
    BlockTree,
    Loop,
    NotUnderstood,
    index_interval,
    integer,
    linear_coefficient,
    read_blocks,
)
from .extents import Interval, Intervals, Node, Tape


@dataclass(frozen=True)
class NestAccess:
    """A region of a buffer that a block reads or writes.

    - ``buffer``: the buffer's name.
    - ``is_write``: whether the block writes it.
    - ``itemsize``: the bytes of an element.
    - ``touched``, ``runs``: the bytes that each loop touches together with its inner loops, and
      the number of contiguous bytes among them, the innermost loop first; see ``nests.Access``.
    - ``strides``: the elements that one step of each loop moves along the buffer, the innermost
      loop first; 0 where the region does not depend on the loop.
    """

    buffer: str
    is_write: bool
    itemsize: int
    touched: tuple[Node, ...]
    runs: tuple[Node, ...]
    strides: tuple[Node, ...]


@dataclass(frozen=True)
class Nest:
    """The loops around one block without nested blocks.

    - ``block``: the block's name.
    - ``loops``: the number of each loop in the module, the innermost first: nests may share outer
      loops.
    - ``extents``: the iterations of each loop.
    - ``reduces``: whether each loop runs over a reduction axis.
    - ``single``: whether the body of each loop is one statement.
    - ``operations``: the operations of one execution of the block; see
      ``loop_context.operations``.
    - ``accesses``: the writes of the block, then its reads.
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

    ``tape``: evaluates the nodes of the nests for points of the key's sketch. ``nests``: the nests
    in the order of the module.
    """

    tape: Tape
    nests: tuple[Nest, ...]


def compile_skeleton(sketch: Sketch, schedule: Schedule) -> Skeleton:
    """Read the loop nests of a key from one of its schedules.

    ``sketch``: the sketch of the schedule. ``schedule``: a replayed schedule, without
    postprocessors. Raises ``NotUnderstood`` if a loop's extent is not known to follow from the
    decisions; the message names the cause.
    """
    tape = Tape()
    tree = read_blocks(schedule.mod)
    lengths = _Lengths(tree, AxisOrigins(sketch, schedule, tree, tape), tape)
    numbers = {id(loop): n for n, loop in enumerate(tree.loops)}
    nests = []
    for block in tree.blocks:
        inner_first = block.loops[::-1]
        nests.append(
            Nest(
                block.name,
                tuple(numbers[id(loop)] for loop in inner_first),
                tuple(lengths.extent(loop) for loop in inner_first),
                tuple(lengths.reduces(loop) for loop in inner_first),
                tuple(lengths.is_single(loop) for loop in inner_first),
                operations(block.realize.block.body),
                tuple(lengths.accesses(block)),
            )
        )
    return Skeleton(tape, tuple(nests))


class _Lengths:
    """Extents, regions and strides as nodes of a tape."""

    def __init__(self, tree: BlockTree, origins: AxisOrigins, tape: Tape) -> None:
        self._tree = tree
        self._origins = origins
        self._tape = tape
        self._intervals = Intervals(tape)
        self._counts: dict[tuple[str, int, int], Node] = {}

    def extent(self, loop: Loop) -> Node:
        """The extent of a loop."""
        if id(loop) not in self._origins.extents:
            for region in self._origins.regions.values():
                own = region.block.loops[region.depth :]
                for axis, other in enumerate(own):
                    if other is loop:
                        self._origins.extents[id(loop)] = self._needed(region, axis, region.depth)
        if id(loop) not in self._origins.extents:
            raise NotUnderstood(f"the loop {loop.variable.name}")
        return self._origins.extents[id(loop)]

    def _needed(self, region: Region, axis: int, depth: int) -> Node:
        """The number of an axis's values needed while the loops deeper than `depth` iterate."""
        tape = self._tape
        counts = []
        for other, needed, dimensions in region.required:
            dimension = dimensions[axis]
            if dimension is None:
                return tape.constant(region.block.lengths[axis])
            part = needed.region[dimension]
            interval = self.index(other, part.min, depth)
            counts.append(
                tape.add(self._intervals.span(interval), tape.constant(integer(part.extent)))
            )
        count = counts[0]
        for another in counts[1:]:
            count = tape.greatest(count, another)
        return tape.least(count, tape.constant(region.block.lengths[axis]))

    def count(self, block: Block, axis: int, depth: int) -> Node:
        """The number of values of a block's axis while its loops deeper than `depth` iterate."""
        key = (block.name, axis, depth)
        if key not in self._counts:
            self._counts[key] = self._count(block, axis, depth)
        return self._counts[key]

    def _count(self, block: Block, axis: int, depth: int) -> Node:
        tape = self._tape
        if block.name in self._origins.regions:
            region = self._origins.regions[block.name]
            if depth < region.depth:
                return self._needed(region, axis, depth)
            own = block.loops[region.depth + axis]
            within = own in block.loops[depth:]
            return self.extent(own) if within else tape.constant(1)
        chain = self._origins.chains[block.name][axis]
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

    def index(self, block: Block, index: Any, depth: int) -> Interval:
        """The interval of a block's index while its loops deeper than `depth` iterate."""

        def interval(variable: Any) -> Interval:
            for number, axis in enumerate(block.variables):
                if axis.same_as(variable):
                    return self._intervals.counted(self.count(block, number, depth))
            raise NotUnderstood(f"the variable {variable.name} of {block.name}")

        return index_interval(index, interval, self._intervals)

    def accesses(self, block: Block) -> Iterable[NestAccess]:
        """The writes of a block, then its reads."""
        for regions, is_write in ((block.writes, True), (block.reads, False)):
            for region in regions:
                yield self._access(block, region, is_write=is_write)

    def _access(self, block: Block, region: Any, *, is_write: bool) -> NestAccess:
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

    def _stride(self, block: Block, region: Any, loop: Loop) -> Node:
        """The stride of one step of a loop, as the postprocessor's ``StrideExtractor`` finds it."""
        tape = self._tape
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
            within *= integer(length)
        return tape.constant(0)

    def _step(self, block: Block, axis: int, loop: Loop) -> Node | None:
        """The increment of an axis per step of a loop; None if the axis ignores the loop."""
        if block.name in self._origins.regions:
            region = self._origins.regions[block.name]
            is_own = block.loops[region.depth + axis] is loop
            return self._tape.constant(1) if is_own else None
        chain = self._origins.chains[block.name][axis]
        if loop not in chain:
            return None
        return self._tape.product([self.extent(other) for other in chain[chain.index(loop) + 1 :]])

    def reduces(self, loop: Loop) -> bool:
        """True if a loop runs over a reduction axis of any of its blocks."""
        return any(
            int(block.axes[axis].iter_type) == REDUCE
            for block in self._tree.blocks
            if loop in block.loops
            for axis in range(len(block.axes))
            if self._step(block, axis, loop) is not None
        )

    def is_single(self, loop: Loop) -> bool:
        """True if the body of a loop is one statement."""
        children = set()
        for block in self._tree.blocks:
            if loop in block.loops:
                within = block.loops[block.loops.index(loop) + 1 :]
                children.add(id(within[0]) if within else id(block))
        return len(children) == 1

    def _touched(self, block: Block, region: Any, depth: int) -> tuple[Node, Node]:
        """The bytes of a region that loops deeper than `depth` touch, and the contiguous bytes."""
        tape = self._tape
        touched = run = tape.constant(int(region.source.dtype.itemsize))
        is_whole = tape.constant(1)
        for part, length in reversed(list(zip(region.region, region.source.shape, strict=True))):
            span = self._intervals.span(self.index(block, part.min, depth))
            extent = tape.constant(integer(part.extent))
            end = tape.constant(integer(length))
            covered = tape.least(tape.add(span, extent), end)
            touched = tape.multiply(touched, covered)
            # 1 where the inner dimensions are not covered completely.
            factor = tape.add(
                tape.multiply(is_whole, covered), tape.subtract(tape.constant(1), is_whole)
            )
            run = tape.multiply(run, factor)
            is_whole = tape.multiply(is_whole, tape.equal(covered, end))
        return touched, run
