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
"""Monte Carlo tree search."""

import math
import random
from collections import Counter
from dataclasses import dataclass, field

from . import Point, SearchSpace, count_points, unseen_point


@dataclass
class _Node:
    """The points that begin with the same decisions.

    Parameters
    ----------
    unasked : int
        How many of them were not asked for.
    children : dict[int, _Node]
        By the next decision, those that the tree has.
    visits : int
        How many of them were told while the tree had this node.
    speed : float
        The sum of their speeds: one over the time in seconds, 0 for failures.
    """

    unasked: int
    children: dict[int, "_Node"] = field(default_factory=dict)
    visits: int = 0
    speed: float = 0.0


class MonteCarloTreeSearch:
    """Monte Carlo tree search by UCT over the decisions in order, the sketch first.

    Kocsis and Szepesvari, "Bandit based Monte-Carlo planning" (ECML 2006): each iteration walks
    down the tree by ``mean reward + exploration * sqrt(ln(parent's visits) / visits)``, adds one
    node, makes the decisions below it at random, and adds the reward to all nodes above. The
    reward is the speed relative to the fastest so far. A tile has hundreds of values, each of
    which UCT would try once; with progressive widening (Coulom, "Computing Elo ratings of move
    patterns in the game of Go", 2007) a node has at most ``sqrt(visits)`` children, rounded up.
    What has been asked for entirely is not entered again.

    Parameters
    ----------
    space : SearchSpace
        What to search.
    generator : random.Random
        Makes all its choices.
    exploration : float
        The weight of the exploration term; that of UCB1 by default.
    """

    def __init__(
        self, space: SearchSpace, generator: random.Random, exploration: float = math.sqrt(2)
    ) -> None:
        self._sizes = list(space.sizes)
        self._generator = generator
        self._exploration = exploration
        self._asked: set[Point] = set()
        self._best = math.inf
        self._root = _Node(count_points(self._sizes))

    def ask(self, n: int) -> list[Point]:
        """One point; see `AskTell`."""
        if n < 1 or self._root.unasked == 0:
            return []
        point = unseen_point(self._sizes, self._asked, self._generator, self._descend())
        assert point is not None, "a node counts points that were not asked for, and has none"
        self._asked.add(point)
        for node in self._path(point):
            node.unasked -= 1
        return [point]

    def tell(self, point: Point, secs: float) -> None:
        """See `AskTell`."""
        self._best = min(self._best, secs)
        for node in self._path(point):
            node.visits += 1
            node.speed += 1.0 / secs

    def _descend(self) -> Point:
        """Walk down the tree and add a node; what the point is to begin with."""
        node = self._root
        prefix: Point = ()
        while not self._is_point(prefix):
            choices = self._choices(node, prefix)
            enough = len(node.children) >= max(1, math.ceil(math.sqrt(node.visits)))
            open_children = [value for value in node.children if node.children[value].unasked]
            if choices and not (enough and open_children):
                value = self._generator.choice(choices)
                prefix = (*prefix, value)
                node.children[value] = _Node(self._count_unasked(prefix))
                return prefix
            value = max(open_children, key=lambda child: self._bound(node, node.children[child]))
            node, prefix = node.children[value], (*prefix, value)
        return prefix

    def _bound(self, parent: _Node, child: _Node) -> float:
        """The upper confidence bound of a child."""
        if child.visits == 0:
            return math.inf
        # Infinitely slow all of them: there is no fastest to relate to, and no speed either.
        mean = child.speed / child.visits * self._best if child.speed else 0.0
        return mean + self._exploration * math.sqrt(math.log(parent.visits) / child.visits)

    def _choices(self, node: _Node, prefix: Point) -> list[int]:
        """The values of the next decision that the tree lacks and that have unasked points."""
        size = self._sizes[prefix[0]][len(prefix) - 1] if prefix else len(self._sizes)
        depth = len(prefix)
        asked = Counter(point[depth] for point in self._asked if point[:depth] == prefix)
        return [
            value
            for value in range(size)
            if value not in node.children
            and asked[value] < count_points(self._sizes, (*prefix, value))
        ]

    def _count_unasked(self, prefix: Point) -> int:
        asked = sum(point[: len(prefix)] == prefix for point in self._asked)
        return count_points(self._sizes, prefix) - asked

    def _is_point(self, prefix: Point) -> bool:
        return bool(prefix) and len(prefix) == 1 + len(self._sizes[prefix[0]])

    def _path(self, point: Point) -> list[_Node]:
        """The nodes of the tree that a point lies under."""
        node, path = self._root, [self._root]
        for value in point:
            if value not in node.children:
                break
            node = node.children[value]
            path.append(node)
        return path
