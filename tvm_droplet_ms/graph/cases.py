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
"""Random small graphs, on which rules are proved. Imports no TVM."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from .equality.egraph import EGraph
from .equality.facts import Infer
from .equality.language import LEAVES, Node, Operator, Tensor, Term, constant_leaf, input_leaf
from .interpreter import Array, Value, evaluate

T = TypeVar("T")


@dataclass
class Case:
    """A small graph.

    Attributes
    ----------
    roots : list[Term]
        Its results.
    arrays : dict[Operator, Array]
        The values of its leaves.
    """

    roots: list[Term]
    arrays: dict[Operator, Array]

    def graph(self, infer: Infer, limit: int | None = None) -> EGraph:
        """An e-graph of it."""
        graph = EGraph(infer, limit=limit)
        for root in self.roots:
            graph.add_term(root)
        return graph


@dataclass
class CaseMaker:
    """Draws what a case is made of.

    Attributes
    ----------
    rng : np.random.Generator
        The source of all that is random.
    dtype : str
        The type of all tensors.
    """

    rng: np.random.Generator
    dtype: str = "float64"
    arrays: dict[Operator, Array] = field(default_factory=dict)

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, options: Sequence[T]) -> T:
        """One of some options."""
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        """True with a probability."""
        return bool(self.rng.random() < probability)

    def input(self, *shape: int) -> Term:
        """A parameter."""
        return self._leaf(input_leaf(len(self.arrays), Tensor(shape, self.dtype)), shape)

    def weight(self, *shape: int) -> Term:
        """A constant."""
        return self._leaf(constant_leaf(len(self.arrays), Tensor(shape, self.dtype)), shape)

    def case(self, *roots: Term) -> Case:
        """The case of some results."""
        return Case(list(roots), dict(self.arrays))

    def _leaf(self, leaf: Operator, shape: tuple[int, ...]) -> Term:
        # Away from zero, so that quotients and roots are tame.
        values = self.rng.uniform(0.5, 1.5, shape) * self.rng.choice([-1.0, 1.0], shape)
        self.arrays[leaf] = np.asarray(values, self.dtype)
        return Term(leaf)


class Unequal(Exception):
    """An e-node does not have the value of its class."""


def check_values(graph: EGraph, arrays: dict[Operator, Array], tolerance: float) -> int:
    """Check that all e-nodes of each class have one value.

    Parameters
    ----------
    graph : EGraph
        The e-graph.
    arrays : dict[Operator, Array]
        The values of its leaves.
    tolerance : float
        The largest difference, relative to the largest value of the class.

    Returns
    -------
    compared : int
        How many e-nodes were compared with others.

    Raises
    ------
    Unequal
        If an e-node has another value than its class.
    """
    values: dict[int, Value] = {}
    waiting = [(number, node) for number, nodes in graph.classes() for node in nodes]
    compared = 0
    while waiting:
        left = []
        for number, node in waiting:
            children = [values.get(graph.find(child)) for child in node.children]
            known = [child for child in children if child is not None]
            if len(known) < len(children):
                left.append((number, node))
                continue
            value = _value(node, known, arrays)
            if number in values:
                _compare(number, node, values[number], value, tolerance)
                compared += 1
            else:
                values[number] = value
        if len(left) == len(waiting):
            break
        waiting = left
    return compared


def _value(node: Node, operands: list[Value], arrays: dict[Operator, Array]) -> Value:
    if node.operator.name in LEAVES and node.operator in arrays:
        return arrays[node.operator]
    return evaluate(node.operator, operands)


def _compare(number: int, node: Node, expected: Any, actual: Any, tolerance: float) -> None:
    if isinstance(expected, tuple):
        for one, other in zip(expected, actual, strict=True):
            _compare(number, node, one, other, tolerance)
        return
    if expected.shape != actual.shape:
        raise Unequal(f"class {number} has the shape {expected.shape}, {node} {actual.shape}")
    largest = max(float(np.abs(expected).max(initial=0)), 1e-30)
    if not np.abs(expected - actual).max(initial=0) <= tolerance * largest:
        raise Unequal(f"{node} differs from class {number} by more than {tolerance} of {largest}")
