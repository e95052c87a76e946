# SPDX-License-Identifier: Apache-2.0
"""The loops that the axes of each block run over, read from the trace of a schedule.

An axis is a chain of loops that ``Split`` made. For a block that ``ComputeAt`` or
``ReverseComputeAt`` moved, it covers the region that another block needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from ...search_strategy.published.decisions import Sketch
from .block_tree import Block, BlockTree, Loop, NotUnderstood
from .extents import Node, Tape

REDUCE = int(tirx.IterVar.CommReduce)
"""The type of a reduction axis."""

_SPLIT, _TILE = "Split", "SamplePerfectTile"
_MOVES = frozenset({"ComputeAt", "ReverseComputeAt"})
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
"""Instructions that make no loops, or only loops over whole axes."""


@dataclass
class Region:
    """The loops made by moving a block to a loop of another block, one for each of its axes.

    - ``block``: the moved block.
    - ``depth``: the number of outer loops around its own loops.
    - ``required``: for each consumer or producer of the block at this place: that block, its
      region, and the region's dimension for each axis. None marks a reduction axis, whose loop is
      whole.
    """

    block: Block
    depth: int
    required: list[tuple[Block, Any, list[int | None]]]


class AxisOrigins:
    """The loops that the axes of each block of a schedule run over.

    - ``schedule``: the schedule, without postprocessors.
    - ``tape``: records the nodes.
    - ``extents``: the loop extents that follow from the trace, by the ``id`` of the loop.
    - ``chains``: the loops that each axis of a block was split into, the outermost first, by block
      name.
    - ``regions``: the regions of the moved blocks, by block name.

    Raises ``NotUnderstood`` if a loop's extent does not follow from the decisions; the message
    names the cause.
    """

    def __init__(self, sketch: Sketch, schedule: Schedule, tree: BlockTree, tape: Tape) -> None:
        self._sketch = sketch
        self._schedule = schedule
        self._tree = tree
        self._tape = tape
        # The positions of decisions refer to the simplified trace, without unused instructions.
        self._insts = list(schedule.trace.simplified(remove_postproc=True).insts)
        self.extents: dict[int, Node] = {}
        self.chains: dict[str, list[list[Loop]]] = {}
        self.regions: dict[str, Region] = {}
        self._read_trace()
        for block in tree.blocks:
            self._explain(block)

    def _find(self, loop_rv: Any) -> Loop | None:
        """The loop of a variable of the trace; None if it was split further."""
        try:
            variable = self._schedule.get(loop_rv).loop_var
        except Exception:  # TVM raises errors of many types for a removed loop.
            return None
        return self._tree.find(variable)

    def _read_trace(self) -> None:
        self._moved: set[str] = set()
        entries: dict[Any, Node] = {}
        parts: dict[Any, list[Any]] = {}
        axes: list[list[Any]] = []
        positions = {decision.inst: decision for decision in self._sketch.decisions}
        for position, inst in enumerate(self._insts):
            kind = inst.kind.name
            if kind == "EnterPostproc":
                break
            if kind == _TILE and position in positions:
                start = positions[position].start
                for index, output in enumerate(inst.outputs):
                    entries[output] = self._tape.entry(start + index)
            elif kind == _SPLIT:
                loop, *factors = inst.inputs
                for output, factor in zip(inst.outputs, factors, strict=True):
                    self._note_split(output, factor, entries)
                parts[loop] = list(inst.outputs)
            elif kind == "GetLoops":
                axes.append(list(inst.outputs))
            elif kind in _MOVES:
                self._moved.add(block_name(self._schedule, inst.inputs[0]))
            elif kind not in _HARMLESS:
                raise NotUnderstood(f"the instruction {kind}")
        for outputs in axes:
            self._note_chains(outputs, parts)

    def _note_split(self, output: Any, factor: Any, entries: Mapping[Any, Node]) -> None:
        loop = self._find(output)
        if isinstance(factor, int | tirx.IntImm):
            node = self._tape.constant(int(factor))
        elif factor in entries:
            node = entries[factor]
        else:
            raise NotUnderstood("a Split by what is no tile")
        if loop is not None:
            self.extents[id(loop)] = node

    def _note_chains(self, outputs: Sequence[Any], parts: Mapping[Any, list[Any]]) -> None:
        """Note the loops that each axis of a block was split into."""
        if not any(output in parts for output in outputs):
            return
        chains = [[self._find(loop) for loop in leaf_loops(output, parts)] for output in outputs]
        found = [[loop for loop in chain if loop is not None] for chain in chains]
        if found != chains:
            raise NotUnderstood("a tiled loop that is gone")
        for chain in found:
            if len(chain) == 1:  # An axis that was not split.
                self.extents.setdefault(id(chain[0]), self._tape.constant(chain[0].extent))
        inner = found[-1][-1]
        owner = [block for block in self._tree.blocks if inner in block.loops]
        tiled = [block for block in owner if len(block.axes) == len(outputs)]
        for block in tiled:
            if all(loop in block.loops for chain in found for loop in chain):
                self.chains[block.name] = found

    def _explain(self, block: Block) -> None:
        if block.name in self.chains:
            return
        own = block.loops[-len(block.axes) :] if block.axes else ()
        if len(own) != len(block.axes):
            raise NotUnderstood(f"the loops of {block.name}")
        # A block that was not moved to a loop keeps the loops over its whole axes.
        if block.name not in self._moved or len(block.loops) == len(own):
            if len(block.loops) != len(own):
                raise NotUnderstood(f"the loops of {block.name}")
            for loop, length in zip(own, block.lengths, strict=True):
                if loop.extent != length:
                    raise NotUnderstood(f"a loop of {block.name}")
                self.extents[id(loop)] = self._tape.constant(length)
            self.chains[block.name] = [[loop] for loop in own]
            return
        self.regions[block.name] = self._region(block, len(block.loops) - len(own))

    def _region(self, block: Block, depth: int) -> Region:
        around = block.loops[:depth]
        others = [
            other
            for other in self._tree.blocks
            if other is not block and other.loops[:depth] == around
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
                return Region(block, depth, required)
        raise NotUnderstood(f"what {block.name} was moved to")


def block_name(schedule: Schedule, block_rv: Any) -> str:
    """The name of a block of the trace; empty if the block was inlined afterwards."""
    try:
        return str(schedule.get(block_rv).name_hint)
    except Exception:  # TVM raises errors of many types for an inlined block.
        return ""


def leaf_loops(loop: Any, parts: Mapping[Any, list[Any]]) -> list[Any]:
    """The innermost loops that a loop was split into or fused from; itself if it has no parts."""
    if loop not in parts:
        return [loop]
    return [leaf for part in parts[loop] for leaf in leaf_loops(part, parts)]


def _dimensions(block: Block, region: Any) -> list[int | None]:
    """For each axis of a block, the dimension of the block's own region that it indexes."""
    starts = [part.min for part in region.region]
    found: list[int | None] = []
    for axis in block.axes:
        matching = [n for n, start in enumerate(starts) if start.same_as(axis.var)]
        if len(matching) != 1 and int(axis.iter_type) != REDUCE:
            raise NotUnderstood(f"the axis {axis.var.name} of {block.name}")
        found.append(matching[0] if matching else None)
    return found
