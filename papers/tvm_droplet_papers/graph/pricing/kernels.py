# SPDX-License-Identifier: Apache-2.0
"""The kernels of a graph, which are timed one by one. Imports no TVM."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tvm_droplet_ms.model.kernels.weights.weight_marks import CACHE_BYTES

from ..equality.egraph import EGraph
from ..equality.language import ELEMENTWISE, Node, Operator, Tensor, Type, operator
from ..extraction.implementations import Implementation, Layout, conversion, moves_nothing, stored
from ..extraction.prices import FREE, bytes_of
from ..extraction.problem import Choice, Plan, Step

UNTIMED = frozenset({"strided_slice", "opaque", *FREE, *ELEMENTWISE})
"""Operators that are not timed alone. Elementwise operators are fused into the kernel before them
and slices into the kernel after them. A call that no rule knows is the same in every graph."""

SHARED_CALLS = 3
"""The number of calls sharing a weight from which most calls find it in the caches."""

_Call = tuple[Operator, tuple[int | Type, ...]]
"""An operator with the classes of its weights and the types of its other operands."""


class Kernel(NamedTuple):
    """An operator on tensors of given types: the unit that is timed and priced.

    - ``operator``: the operator, with the layouts of the tensors.
    - ``operands``: the types of the operands as stored.
    - ``weights``: whether each operand is known before the model runs. A schedule may change the
      layout of such operands.
    - ``is_warm``: whether repeated calls with the same weights find them in the caches.
    """

    operator: Operator
    operands: tuple[Tensor, ...]
    weights: tuple[bool, ...]
    is_warm: bool = False

    @property
    def calls(self) -> int:
        """The number of calls needed to time the kernel under realistic conditions."""
        return SHARED_CALLS if self.is_warm else 1

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, type_.shape)) for type_ in self.operands)
        layout = dict(self.operator.attributes).get("layout", "")
        name = f"{self.operator.name} {layout}" if layout else self.operator.name
        return f"{name} of {shapes}{' with cached weights' if self.is_warm else ''}"


def kernel_of(graph: EGraph, number: int, way: Implementation) -> Kernel | None:
    """The kernel that represents an implementation of an e-node in timing.

    ``number``: the class that the implementation computes. Returns None for ``UNTIMED`` operators
    and for tuples, which are not timed.
    """
    if way.operator.name in UNTIMED or not isinstance(graph.facts(number).type, Tensor):
        return None
    operands = []
    for child, layout in zip(way.node.children, way.operands, strict=True):
        type_ = graph.facts(child).type
        if not isinstance(type_, Tensor):
            return None
        operands.append(stored(type_, layout))
    weights = tuple(graph.is_weight(child) for child in way.node.children)
    return Kernel(way.operator, tuple(operands), weights, _is_warm(graph, way.node))


def _is_warm(graph: EGraph, node: Node) -> bool:
    """True if enough e-nodes call the same kernel with the same weights and these stay cached.

    All weights of the graph must fit the caches, because the order of the calls is not known yet.
    """
    if not any(map(graph.is_weight, node.children)):
        return False
    calls = graph.derived(_calls)[_call_of(graph, node)]
    return calls >= SHARED_CALLS and graph.derived(_weight_bytes) <= CACHE_BYTES


def _calls(graph: EGraph) -> "Counter[_Call]":
    """Count the e-nodes for each distinct call with weights."""
    nodes = (node for _, nodes in graph.classes() for node in nodes)
    return Counter(_call_of(graph, n) for n in nodes if any(map(graph.is_weight, n.children)))


def _call_of(graph: EGraph, node: Node) -> _Call:
    operands = [
        graph.find(child) if graph.is_weight(child) else graph.facts(child).type
        for child in node.children
    ]
    return node.operator, tuple(operands)


def _weight_bytes(graph: EGraph) -> float:
    leaves = {number for number, _ in graph.named("input", "constant") if graph.is_weight(number)}
    return sum(bytes_of(graph.facts(number).type) for number in leaves)


def conversion_kernel(type_: Tensor, source: Layout, target: Layout) -> Kernel | None:
    """The kernel that converts a tensor from one layout to another; None if no data move."""
    before, axes = stored(type_, source), conversion(source, target)
    if moves_nothing(before.shape, axes):
        return None
    return Kernel(operator("permute_dims", axes=axes), (before,), (False,))


def kernel_of_step(graph: EGraph, step: Step) -> Kernel | None:
    """The kernel of a plan's step; None if the step is not timed."""
    if isinstance(step, Choice):
        return kernel_of(graph, step.place[0], step.what)
    type_ = graph.type(step.place[0])
    return conversion_kernel(type_, step.source[1], step.place[1])


def kernels_of(graph: EGraph, plan: Plan) -> Iterator[tuple[Step, Kernel | None]]:
    """The steps of a plan with their kernels; None for a step that is not timed."""
    for step in plan.steps.values():
        yield step, kernel_of_step(graph, step)
