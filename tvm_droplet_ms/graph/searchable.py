# SPDX-License-Identifier: Apache-2.0
"""The problems of a tree search, and its result. Imports no TVM."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

S = TypeVar("S")


class Environment(Protocol[S]):
    """A search problem. States are hashable: equal states are one."""

    def actions(self, state: S) -> Sequence[str]:
        """The actions that a state allows."""

    def step(self, state: S, action: str) -> S | None:
        """The state after an action; None where it changes nothing or is not allowed."""

    def filled(
        self,
        state: S,
        actions: Sequence[str],
        parts: int = 1,
        generator: np.random.Generator | None = None,
    ) -> S:
        """A state with what fits of actions in part, one part of the state after the other."""

    def cost(self, state: S) -> float:
        """The cost of a state, which a search is to make small."""


@dataclass
class Found(Generic[S]):
    """The result of a search.

    - ``best``: the state of the lowest cost; of those, the first.
    - ``simulations``: how many simulations were made.
    - ``costs``: how many different states were priced.
    - ``actions``: the real steps.
    """

    best: S
    cost: float
    simulations: int = 0
    costs: int = 0
    actions: list[str] = field(default_factory=list)
