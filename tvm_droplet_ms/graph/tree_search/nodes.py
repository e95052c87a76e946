# SPDX-License-Identifier: Apache-2.0
"""The nodes of the tree of a tree search. Imports no TVM."""

import math
from typing import Any


class Child:
    """An edge of the tree."""

    def __init__(self, action: str, node: "Node") -> None:
        self.action = action
        self.node = node
        self.visits = 0
        self.total = 0.0

    @property
    def mean(self) -> float:
        """The mean return; minus infinity before the first visit."""
        return self.total / self.visits if self.visits else -math.inf


class Node:
    def __init__(self, state: Any, untried: list[str]) -> None:
        self.state = state
        self.untried = untried
        self.children: dict[str, Child] = {}
        self.visits = 0
        self.done = False
