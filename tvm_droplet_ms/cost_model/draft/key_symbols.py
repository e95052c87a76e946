# SPDX-License-Identifier: Apache-2.0
"""The symbols of points of a design space, by key."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tvm import tirx
from tvm.s_tir import Schedule, Trace

from ...search_strategy.published.decision_kinds import COMPUTE_LOCATION
from ...search_strategy.published.decisions import Sketch
from ...search_strategy.published.neighborhood import Point
from .block_tree import NotUnderstood
from .extents import Node, Tape
from .skeleton import Nest, compile_skeleton
from .symbols import SYMBOLS, Limits, NestValues, symbols

_LIMITS = (
    ("meta_schedule.parallel",),
    ("meta_schedule.vectorize",),
    ("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit"),
)
_CHOICE = "SampleCategorical"

Key = tuple[int, ...]
"""The realized compute locations of a point."""


def key_of(sketch: Sketch, point: Point) -> Key:
    """The key of a point of a sketch."""
    return tuple(
        number
        for decision in sketch.decisions
        if decision.kind.name == COMPUTE_LOCATION.name
        for number in decision.value(point)
    )


@dataclass
class KeySymbols:
    """The symbols of the points of one key.

    ``schedule``: a replayed schedule of the key, without postprocessors. Raises ``NotUnderstood``
    if the loops of the key are not known to follow from its decisions.
    """

    sketch: Sketch
    schedule: Schedule
    _nests: list[Nest] = field(init=False)
    _tape: Tape = field(init=False)

    def __post_init__(self) -> None:
        skeleton = compile_skeleton(self.sketch, self.schedule)
        self._tape = skeleton.tape
        self._nests = [nest for nest in skeleton.nests if nest.extents and nest.accesses]
        trace = self.schedule.trace.simplified(remove_postproc=True)
        self._limits = [_limit(self._tape, self.sketch, trace, names) for names in _LIMITS]
        self._nodes = sorted({node for nest in self._nests for node in _nodes(nest)})
        self._nodes = sorted({*self._nodes, *self._limits})
        self._rows = {node: row for row, node in enumerate(self._nodes)}

    def of(self, points: np.ndarray) -> np.ndarray:
        """The symbols of points of the key.

        ``points``: decisions, of shape ``(points, entries)``. Returns values of shape ``(points,
        SYMBOLS)``, float32.
        """
        nests, limits = self.values(points)
        if not nests:
            return np.zeros((len(points), SYMBOLS), dtype=np.float32)
        return symbols(nests, limits)

    def values(self, points: np.ndarray) -> tuple[list[NestValues], Limits]:
        """The loop nests and the annotated limits of points of the key.

        ``points``: decisions, of shape ``(points, entries)``.
        """
        values = self._tape.evaluate(points, self._nodes)

        def chosen(nodes: Sequence[Node]) -> np.ndarray:
            return values[[self._rows[node] for node in nodes]]

        nests = [
            NestValues(
                chosen(nest.extents),
                np.stack([chosen(access.touched) for access in nest.accesses]),
                np.stack([chosen(access.runs) for access in nest.accesses]),
                np.stack([chosen(access.strides) for access in nest.accesses]),
                [access.itemsize for access in nest.accesses],
                nest.reduces,
                nest.single,
                float(nest.operations.sum()),
            )
            for nest in self._nests
        ]
        parallel, vector, unroll = chosen(self._limits)
        return nests, Limits(parallel, vector, unroll)


def _nodes(nest: Nest) -> set[Node]:
    found = set(nest.extents)
    for access in nest.accesses:
        found.update(access.touched, access.runs, access.strides)
    return found


def _limit(tape: Tape, sketch: Sketch, trace: Trace, names: Sequence[str]) -> Node:
    """The annotated value of a block: a constant, a parallel extent or a choice; 0 for none."""
    decisions = {decision.inst: decision for decision in sketch.decisions}
    choices: list[tuple[Any, Node]] = []
    for position, inst in enumerate(trace.insts):
        if inst.kind.name == _CHOICE and position in decisions:
            candidates = [float(value) for value in inst.attrs[0]]
            start = decisions[position].start
            choices.append((inst.outputs[0], tape.table(start, candidates)))
        elif inst.kind.name == "Annotate" and str(inst.attrs[0]) in names:
            value = inst.inputs[1]
            if position in decisions:  # A parallel extent, which MutateParallel changes.
                return tape.entry(decisions[position].start)
            if isinstance(value, int | tirx.IntImm):
                return tape.constant(int(value))
            chosen = [node for variable, node in choices if variable.same_as(value)]
            if not chosen:
                raise NotUnderstood(f"the annotation {names[0]}")
            return chosen[0]
    return tape.constant(0)
