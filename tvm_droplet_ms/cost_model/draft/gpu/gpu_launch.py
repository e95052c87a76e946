# SPDX-License-Identifier: Apache-2.0
"""Reads from a trace how the launch of a GPU schedule depends on its decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tvm.s_tir import Schedule

from ....search_strategy.published.decisions import Sketch
from ..axis_origins import REDUCE, block_name, leaf_loops
from ..block_tree import NotUnderstood, index_interval, integer
from ..extents import Interval, Intervals, Node, Tape
from .wide_vectors import refused_lanes


@dataclass(frozen=True)
class Launch:
    """The launch of a sketch's schedules, as nodes of a tape.

    ``tape``: evaluates the nodes for points of the sketch. ``threads``, ``shared_bytes``: the
    threads and the bytes of shared memory of a block. ``least``, ``most``: the bounds on the
    threads that the schedule rule sets. ``refused``: positive for vectors and pipelines that TVM
    refuses.
    """

    tape: Tape
    threads: Node
    shared_bytes: Node
    least: int
    most: int
    refused: Node

    def is_possible(self, points: np.ndarray, threads: int, shared_bytes: int) -> np.ndarray:
        """True for each point that ``VerifyGPUCode`` accepts.

        ``points``: decisions, of shape ``(points, entries)``. ``threads``, ``shared_bytes``: the
        GPU's limits for a block.
        """
        nodes = [self.threads, self.shared_bytes, self.refused]
        asked, shared, refused = self.tape.evaluate(points, nodes)
        fits = (asked >= self.least) & (asked <= min(self.most, threads)) & (shared <= shared_bytes)
        possible: np.ndarray = fits & (refused == 0)
        return possible


_LOW, _HIGH = (
    "meta_schedule.thread_extent_low_inclusive",
    "meta_schedule.thread_extent_high_inclusive",
)
_STAGES = "software_pipeline_stage"
_WARP = "warp_execution"
_LANES = "meta_schedule.cooperative_fetch"
_WARP_THREADS = 32

_UNKNOWN = frozenset({"RFactor", "SamplePartitionedTile", "ReadAt", "WriteAt"})
"""Instructions of other schedule rules: the last three belong to ``mma``, not ``wmma``."""


def compile_launch(sketch: Sketch, schedule: Schedule) -> Launch:
    """Read the threads and the shared memory of a sketch from one of its schedules.

    ``sketch``: the sketch of the schedule. ``schedule``: a replayed schedule, without
    postprocessors. Raises ``NotUnderstood`` if the threads or the shared memory
    are not known to follow from the decisions.
    """
    return _TraceReader(sketch, schedule).launch()


@dataclass
class _TraceReader:
    sketch: Sketch
    schedule: Schedule
    tape: Tape = field(default_factory=Tape)

    def __post_init__(self) -> None:
        self._intervals = Intervals(self.tape)
        self._extents: dict[Any, Node] = {}
        self._parts: dict[Any, list[Any]] = {}
        self._axes: dict[str, list[Any]] = {}
        self._bound: dict[str, list[Any]] = {}
        self._order: list[Any] = []
        self._copies: list[tuple[Any, str, int]] = []
        self._locations: dict[Any, Any] = {}
        self._alignments: dict[Any, tuple[int, int]] = {}
        self._choices: dict[Any, tuple[int, list[int]]] = {}
        self._vectors: list[tuple[Any, Any]] = []
        self._outputs: list[tuple[Any, str]] = []
        self._pipelines: list[Any] = []
        self._sizes: dict[Any, list[Node]] = {}
        self._versions = 1
        self._warp_threads = 1
        self._least, self._most = 1, 1 << 30
        self._read()

    def launch(self) -> Launch:
        """The threads and the shared memory."""
        if not self._bound or not self._order:
            raise NotUnderstood("a schedule whose loops are not bound by its tiling")
        threads = [self._bound[axis] for axis in self._bound if axis.startswith("threadIdx")]
        tape = self.tape
        shared = [self._copied_bytes(*copy) for copy in self._copies]
        operands = tape.multiply(tape.sum(shared), tape.constant(self._versions))
        # The output's copy reuses the memory of the operands' copies, which are dead by then.
        outputs = [self._output_bytes(consumer) for _, consumer in self._outputs]
        return Launch(
            tape,
            tape.multiply(self._product(threads), tape.constant(self._warp_threads)),
            tape.greatest(operands, tape.sum(outputs)),
            self._least,
            self._most,
            self._refused(),
        )

    def _refused(self) -> Node:
        """A node that is positive for vectors that are too wide and pipelines of one iteration."""
        tape = self.tape
        refused = [self._refused_vectors(*vectors) for vectors in self._vectors]
        for loop in self._pipelines:
            leaves = leaf_loops(loop, self._parts)
            if len(leaves) > 1:
                # A fused loop of one iteration does not count as a reduction: it then contains the
                # initialization, which has no pipeline stage (``rewrite_reduction_block.cc``).
                refused.append(tape.equal(self._product([leaves]), tape.constant(1)))
        return tape.sum(refused)

    def _refused_vectors(self, copy: Any, value: Any) -> Node:
        block = self.schedule.get(copy)
        if value in self._choices:
            column, candidates = self._choices[value]
            lanes = {
                count: self.tape.table(column, [float(other == count) for other in candidates])
                for count in candidates
            }
        else:
            lanes = {integer(value): self.tape.constant(1)}
        # The copy of an output consists of whole fragments.
        lengths = [self.tape.constant(integer(axis.dom.extent)) for axis in block.iter_vars]
        return refused_lanes(self.tape, block, self._sizes.get(copy, lengths), lanes)

    def _output_bytes(self, consumer: str) -> Node:
        """The bytes of a thread block's copy of the output: a row of fragments per warp."""
        tape = self.tape
        block = self.schedule.get(self.schedule.get_sblock(consumer))
        loops = self._axes.get(consumer, [])
        spatial = [
            leaf_loops(loop, self._parts)
            for loop, axis in zip(loops, block.iter_vars, strict=True)
            if int(axis.iter_type) != REDUCE
        ]
        if len(spatial) < 2:
            raise NotUnderstood(f"a shared copy of what {consumer} computes")
        grid = [leaf for axis in self._bound if "block" in axis for leaf in self._bound[axis]]
        rows, columns = spatial[-2:]
        parts = [leaf for leaf in [*rows[:-2], *columns] if leaf not in grid]
        region = block.writes[0]
        fragment = [tape.constant(integer(part.extent)) for part in region.region]
        itemsize = tape.constant(int(region.source.dtype.itemsize))
        return tape.product([itemsize, *fragment, *(self._extent(leaf) for leaf in parts)])

    def _product(self, loops: Sequence[Sequence[Any]]) -> Node:
        return self.tape.product([self._extent(leaf) for leaves in loops for leaf in leaves])

    def _extent(self, leaf: Any) -> Node:
        if leaf not in self._extents:
            raise NotUnderstood("a loop that no tile made")
        return self._extents[leaf]

    def _read(self) -> None:
        positions = {decision.inst: decision for decision in self.sketch.decisions}
        entries: dict[Any, Node] = {}
        for position, inst in enumerate(self.schedule.trace.simplified(remove_postproc=True).insts):
            kind, inputs, outputs = inst.kind.name, list(inst.inputs), list(inst.outputs)
            if kind == "SamplePerfectTile" and position in positions:
                start = positions[position].start
                entries |= {out: self.tape.entry(start + n) for n, out in enumerate(outputs)}
            elif kind == "SampleCategorical" and position in positions:
                candidates = [int(candidate) for candidate in inst.attrs[0]]
                self._choices[outputs[0]] = (positions[position].start, candidates)
            elif kind == "Split":
                self._note_split(inputs[0], inputs[1:], outputs, entries)
            elif kind == "Fuse":
                self._parts[outputs[0]] = inputs
            elif kind == "GetLoops":
                self._axes.setdefault(block_name(self.schedule, inputs[0]), outputs)
            elif kind == "Bind":
                # The first binding is the tiling's. The copies that follow use the same threads.
                self._bound.setdefault(str(inst.attrs[0]), leaf_loops(inputs[0], self._parts))
            elif kind == "Reorder" and not self._order:
                # A Reorder before the tiling moves the loops that a tensor intrinsic replaces.
                self._order = inputs if any(loop in self._extents for loop in inputs) else []
            elif kind == "CacheRead" and str(inst.attrs[1]).startswith("shared"):
                consumer = block_name(self.schedule, inputs[0])
                self._copies.append((outputs[0], consumer, int(inst.attrs[0])))
            elif kind == "CacheWrite" and str(inst.attrs[1]).startswith("shared"):
                self._outputs.append((outputs[0], block_name(self.schedule, inputs[0])))
            elif kind == "ComputeAt":
                self._locations[inputs[0]] = inputs[1]
            elif kind == "StorageAlign":
                self._note_alignment(inputs[0], *map(int, inst.attrs))
            elif kind == "Annotate":
                self._note_annotation(str(inst.attrs[0]), *inputs)
            elif kind in _UNKNOWN:
                raise NotUnderstood(f"the instruction {kind}")

    def _note_split(
        self, loop: Any, factors: Sequence[Any], outputs: Sequence[Any], entries: Mapping[Any, Node]
    ) -> None:
        self._parts[loop] = list(outputs)
        for output, factor in zip(outputs, factors, strict=True):
            if factor in entries:
                self._extents[output] = entries[factor]

    def _note_annotation(self, name: str, place: Any, value: Any) -> None:
        if name == _LOW:
            self._least = int(value)
        elif name == _HIGH:
            self._most = int(value)
        elif name == _STAGES:
            # A copy needs a version for each stage between its writing and its last use.
            stages = [int(stage) for stage in value]
            self._versions = max(stages) - min(stages) + 1
            self._pipelines.append(place)
        elif name == _LANES:
            self._vectors.append((place, value))
        elif name == _WARP:
            self._warp_threads = _WARP_THREADS

    def _note_alignment(self, copy: Any, buffer: int, axis: int, factor: int, offset: int) -> None:
        if (buffer, axis) != (0, -2):
            raise NotUnderstood("padding of other axes than the rows of a copy")
        self._alignments[copy] = (factor, offset)

    def _copied_bytes(self, copy: Any, consumer: str, number: int) -> Node:
        """The bytes of a copy in shared memory: all data that a block's threads read there."""
        tape = self.tape
        block = self.schedule.get(self.schedule.get_sblock(consumer))
        region = block.reads[number]
        # A fragment has the indices of the shared copy that it was loaded from.
        scope = str(region.source.scope())
        if not scope.startswith(("shared", "wmma.matrix")) or copy not in self._locations:
            raise NotUnderstood(f"a shared copy of {consumer}")
        inside = self._turning(self._locations[copy])
        loops = self._axes.get(consumer, [])
        if len(loops) != len(block.iter_vars):
            raise NotUnderstood(f"the loops of {consumer}")
        counts = [self._count(leaf_loops(loop, self._parts), inside) for loop in loops]

        def interval(variable: Any) -> Interval:
            for axis, count in zip(block.iter_vars, counts, strict=True):
                if axis.var.same_as(variable):
                    return self._intervals.counted(count)
            raise NotUnderstood(f"the variable {variable.name} of {consumer}")

        extents = []
        for part, length in zip(region.region, region.source.shape, strict=True):
            index = index_interval(part.min, interval, self._intervals)
            extent = tape.add(self._intervals.span(index), tape.constant(integer(part.extent)))
            extents.append(tape.least(extent, tape.constant(integer(length))))
        self._sizes[copy] = list(extents)
        if copy in self._alignments:
            extents[-1] = self._padded(extents[-1], *self._alignments[copy])
        return tape.product([tape.constant(int(region.source.dtype.itemsize)), *extents])

    def _padded(self, length: Node, factor: int, offset: int) -> Node:
        """Round a length up to ``offset`` more than a multiple of ``factor``."""
        tape = self.tape
        more = tape.add(length, tape.constant(factor - 1 - offset))
        multiple = tape.multiply(tape.floor_divide(more, factor), tape.constant(factor))
        return tape.add(multiple, tape.constant(offset))

    def _turning(self, location: Any) -> list[Any]:
        """The loops inside a location, and the loops bound to threads, which share one copy."""
        if location not in self._order:
            raise NotUnderstood("a copy whose place is no loop of the tiling")
        within = self._order[self._order.index(location) + 1 :]
        threads = [
            leaf
            for axis, leaves in self._bound.items()
            if not axis.startswith("blockIdx")
            for leaf in leaves
        ]
        return [*threads, *within]

    def _count(self, chain: Sequence[Any], turning: Sequence[Any]) -> Node:
        """The number of values of an axis: the product of its loops in ``turning``."""
        turns = [leaf in turning for leaf in chain]
        first = turns.index(True) if True in turns else len(chain)
        if not all(turns[first:]):
            raise NotUnderstood("a loop that stands still within one that turns")
        return self.tape.product([self._extent(leaf) for leaf in chain[first:]])
