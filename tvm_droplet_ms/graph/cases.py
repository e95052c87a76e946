# SPDX-License-Identifier: Apache-2.0
"""Random small graphs, on which rules are proved. Imports no TVM."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from .equality.egraph import EGraph
from .equality.facts import Infer
from .equality.language import Operator, Tensor, Term, constant_leaf, input_leaf
from .equality.terms import add_term
from .interpreter import Array

T = TypeVar("T")


@dataclass
class Case:
    """A small graph. ``roots``: its results. ``arrays``: the values of its leaves."""

    roots: list[Term]
    arrays: dict[Operator, Array]

    def graph(self, infer: Infer, limit: int | None = None) -> EGraph:
        """An e-graph of it."""
        graph = EGraph(infer, limit=limit)
        for root in self.roots:
            add_term(graph, root)
        return graph


@dataclass
class CaseMaker:
    """Draws what a case is made of.

    ``rng``: the source of all that is random. ``dtype``: the type of all tensors.
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
