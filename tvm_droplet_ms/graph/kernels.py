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
"""The kernels that a graph is computed by, as they are timed: each alone. Imports no TVM."""

from collections.abc import Iterator
from typing import NamedTuple

from .egraph import EGraph
from .implementations import Implementation, Layout, conversion, moves_nothing, stored
from .language import ELEMENTWISE, Operator, Tensor, operator
from .prices import FREE
from .problem import Choice, Plan, Step

UNTIMED = frozenset({"strided_slice", "opaque", *FREE, *ELEMENTWISE})
"""What is not timed alone: elementwise work runs in the kernel before it and slices in the one
after it; a call that no rule knows is the same in every graph."""


class Kernel(NamedTuple):
    """An operator on tensors of certain types: what is timed, and has a price.

    Attributes
    ----------
    operator : Operator
        The operator, for the layouts of the tensors.
    operands : tuple[Tensor, ...]
        The types of the operands as they are stored.
    weights : tuple[bool, ...]
        Which operands are known before the model runs: a schedule may change their layout.
    """

    operator: Operator
    operands: tuple[Tensor, ...]
    weights: tuple[bool, ...]

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, type_.shape)) for type_ in self.operands)
        layout = dict(self.operator.attributes).get("layout", "")
        return f"{self.operator.name}{f' {layout}' if layout else ''} of {shapes}"


def kernel_of(graph: EGraph, number: int, way: Implementation) -> Kernel | None:
    """The kernel that an implementation of an e-node is timed as.

    Parameters
    ----------
    graph : EGraph
        The e-graph.
    number : int
        The class that is computed.
    way : Implementation
        The implementation.

    Returns
    -------
    kernel : Kernel or None
        None for what is not timed: see ``UNTIMED``; tuples are not timed either.
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
    return Kernel(way.operator, tuple(operands), weights)


def conversion_kernel(type_: Tensor, source: Layout, target: Layout) -> Kernel | None:
    """The kernel that converts a tensor from one layout to another; None where nothing moves."""
    before, axes = stored(type_, source), conversion(source, target)
    if moves_nothing(before.shape, axes):
        return None
    return Kernel(operator("permute_dims", axes=axes), (before,), (False,))


def kernel_of_step(graph: EGraph, step: Step) -> Kernel | None:
    """The kernel of a step of a plan; None for what is not timed."""
    if isinstance(step, Choice):
        return kernel_of(graph, step.place[0], step.what)
    type_ = graph.type(step.place[0])
    return conversion_kernel(type_, step.source[1], step.place[1])


def kernels_of(graph: EGraph, plan: Plan) -> Iterator[tuple[Step, Kernel | None]]:
    """The steps of a plan with their kernels."""
    for step in plan.steps.values():
        yield step, kernel_of_step(graph, step)
