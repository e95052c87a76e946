# SPDX-License-Identifier: Apache-2.0
"""The interface of a tree search's environment, and the search result. Imports no TVM."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

S = TypeVar("S")


class Environment(Protocol[S]):
    """A search problem. States are hashable, and equal states count as one."""

    def actions(self, state: S) -> Sequence[str]:
        """The actions that a state allows."""

    def step(self, state: S, action: str) -> S | None:
        """The state after an action; None if the action changes nothing or is not allowed."""

    def filled(
        self,
        state: S,
        actions: Sequence[str],
        parts: int = 1,
        generator: np.random.Generator | None = None,
    ) -> S:
        """Apply actions to a state part by part, even partially, as far as they fit."""

    def cost(self, state: S) -> float:
        """The cost of a state, which the search minimizes."""


@dataclass
class Found(Generic[S]):
    """The result of a search.

    - ``best``: the first state with the lowest cost.
    - ``simulations``: the number of simulations.
    - ``costs``: the number of distinct priced states.
    - ``actions``: the real steps of the first nonempty episode.
    """

    best: S
    cost: float
    simulations: int = 0
    costs: int = 0
    actions: list[str] = field(default_factory=list)
