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
"""Monte Carlo tree search over an abstract environment. Imports no TVM.

After "Optimizing Tensor Computation Graphs with Equality Saturation and Monte Carlo Tree Search"
(Hartmann et al., PACT 2024), whose settings are ``mcts_settings.PAPER``. Each difference is a
switch.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from ..searchable import Environment, Found
from .settings import Settings

S = TypeVar("S")


IDLE_SIMULATIONS = 100
"""A search ends after so many simulations in a row that saw nothing new."""

PARTS = (2, 4, 8)
"""Into how many parts the first state is divided: once each when a search begins."""

BETWEEN_PARTS = 8
"""The simulations after which the first state is divided again."""


class _Child:
    """An edge of the tree."""

    def __init__(self, action: str, node: "_Node", reward: float) -> None:
        self.action = action
        self.node = node
        self.reward = reward
        self.visits = 0
        self.total = 0.0
        self.best = -math.inf

    def add(self, value: float) -> None:
        self.visits += 1
        self.total += value
        self.best = max(self.best, value)


class _Node:
    def __init__(self, state: Any, untried: list[str]) -> None:
        self.state = state
        self.untried = untried
        self.children: dict[str, _Child] = {}
        self.visits = 0
        self.done = False


class TreeSearch(Generic[S]):
    """A tree search.

    Parameters
    ----------
    environment : Environment
        What is searched.
    settings : Settings
        The settings.
    seed : int
        The seed of all that is random.
    """

    def __init__(
        self, environment: Environment[S], settings: Settings = Settings(), seed: int = 0
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._rng = np.random.default_rng(seed)
        self._costs: dict[S, float] = {}
        self._steps: dict[tuple[S, str], S | None] = {}
        self._nodes: dict[S, _Node] = {}
        self._gains: dict[str, float] = {}
        self._means: dict[str, tuple[int, float]] = {}
        self._simulated: list[str] = []
        self._idle = 0
        self._end = math.inf

    def run(
        self,
        state: S,
        *,
        time_limit: float = math.inf,
        max_simulations: float = math.inf,
        max_costs: float = math.inf,
    ) -> Found[S]:
        """Search from a state.

        Parameters
        ----------
        state : S
            The first state.
        time_limit : float
            Seconds; the action under way is finished.
        max_simulations : float
            The most simulations.
        max_costs : float
            The most states to price, those of the last simulation apart.

        Returns
        -------
        found : Found
            The best state that any simulation has seen.
        """
        self._end = time.perf_counter() + time_limit

        def is_over() -> bool:
            spent = self._found.simulations >= max_simulations or len(self._costs) >= max_costs
            return spent or self._idle >= IDLE_SIMULATIONS or self._is_late()

        self._start = state
        self._first = self._cost(state)
        self._found = Found(state, self._first)
        if self._settings.rounds and not is_over():
            self._cost(self._saturated(state, in_order=True))
        for parts in PARTS if self._settings.parts else ():
            if not is_over():
                self._work_by_parts(state, parts)
        while not is_over():
            if not self._node(state).done:
                self._episode(state, is_over)
            elif self._settings.rounds:
                self._roll_out_more(state, is_over)
            else:
                break
            # Another episode goes on with the tree; without a tree it would start over.
            if not self._settings.keep_tree:
                break
        self._found.costs = len(self._costs)
        return self._found

    def _work_by_parts(self, state: S, parts: int) -> None:
        """Price a state with all actions in one part of it after the other."""
        actions = list(self._environment.actions(state))
        self._rng.shuffle(actions)
        self._cost(self._environment.filled(state, actions, parts, self._rng))

    def _episode(self, state: S, is_over: Callable[[], bool]) -> None:
        """Real steps from the first state to where nothing can be done any more."""
        root = self._node(state)
        actions: list[str] = []
        for _ in range(self._settings.real_steps):
            for _ in range(self._settings.simulations):
                if is_over() or self._exhausted(root):
                    break
                self._simulate(root)
            open_ = {a: c for a, c in root.children.items() if not c.node.done}
            if not open_:
                break
            action, child = max(open_.items(), key=lambda item: self._value(item[1]))
            actions.append(action)
            if is_over():
                break
            root = child.node
            if not self._settings.keep_tree:
                self._nodes = {}
                root = self._node(root.state)
        self._found.actions = self._found.actions or actions

    def _roll_out_more(self, state: S, is_over: Callable[[], bool]) -> None:
        """Roll-outs where all steps were tried: other actions may fit in part at their ends."""
        for _ in range(self._settings.simulations):
            if is_over():
                break
            self._begin_simulation()
            self._cost(self._saturated(state))

    def _exhausted(self, node: _Node) -> bool:
        return node.done or (not node.untried and not node.children)

    def _begin_simulation(self) -> None:
        """Count a simulation, and at times work by parts beside it."""
        self._found.simulations += 1
        self._idle += 1
        if self._settings.parts and self._found.simulations % BETWEEN_PARTS == 0:
            self._work_by_parts(self._start, PARTS[int(self._rng.integers(len(PARTS)))])

    def _simulate(self, root: _Node) -> None:
        self._begin_simulation()
        path: list[tuple[_Node, _Child]] = []
        node, on_path = root, {id(root)}
        while True:
            child = self._expanded(node) if self._may_expand(node) else None
            if child is not None:
                path.append((node, child))
                break
            child = self._selected(node)
            if child is None or id(child.node) in on_path:
                break
            path.append((node, child))
            node = child.node
            on_path.add(id(node))
        self._simulated = [child.action for _, child in path]
        value = self._rollout(path[-1][1].node.state) if path else 0.0
        self._mark_done([node, *(parent for parent, _ in reversed(path))])
        for parent, child in reversed(path):
            value = child.reward + self._settings.discount * value
            child.add(value)
            parent.visits += 1
        if self._settings.all_as_first:
            so_far = 0.0 if self._settings.price_last else self._first - self._cost(root.state)
            self._remember(so_far + value)

    def _remember(self, gain: float) -> None:
        """Tell all actions of a simulation what it gained."""
        for action in self._simulated:
            count, mean = self._means.get(action, (0, 0.0))
            self._means[action] = (count + 1, mean + (gain - mean) / (count + 1))
            self._gains[action] = self._means[action][1]

    def _mark_done(self, nodes: list[_Node]) -> None:
        if self._settings.prune:
            for node in nodes:
                done = all(child.node.done for child in node.children.values())
                node.done = not node.untried and done

    def _may_expand(self, node: _Node) -> bool:
        if not node.untried:
            return False
        if not node.children:
            return True
        if self._settings.widening:
            return len(node.children) <= math.sqrt(node.visits)
        return bool(self._rng.random() < self._settings.expand)

    def _expanded(self, node: _Node) -> _Child | None:
        """A new child. Actions that change nothing are struck off."""
        while node.untried:
            action = self._next_action(node.untried)
            node.untried.remove(action)
            state = self._step(node.state, action)
            if state is None:
                continue
            reward = 0.0
            if not self._settings.price_last:
                gain = self._cost(node.state) - self._cost(state)
                reward = self._reward(gain)
                if not self._settings.all_as_first:
                    self._gains[action] = gain
            node.children[action] = _Child(action, self._node(state), reward)
            return node.children[action]
        return None

    def _next_action(self, untried: list[str]) -> str:
        if self._settings.widening:
            most = max(self._gains.get(action, math.inf) for action in untried)
            untried = [a for a in untried if self._gains.get(a, math.inf) == most]
        return untried[int(self._rng.integers(len(untried)))]

    def _selected(self, node: _Node) -> _Child | None:
        children = [child for child in node.children.values() if not child.node.done]
        if not children:
            return None
        visits = math.log(max(node.visits, 1))
        scale = self._scale()

        def bound(child: _Child) -> float:
            if child.visits == 0:
                return math.inf
            wide = math.sqrt(2 * visits / child.visits)
            return self._value(child) * scale + self._settings.exploration * wide

        return max(children, key=bound)

    def _value(self, child: _Child) -> float:
        if child.visits == 0:
            return -math.inf
        share = self._settings.best_share
        return share * child.best + (1 - share) * child.total / child.visits

    def _rollout(self, state: S) -> float:
        """The return of random actions."""
        if self._settings.price_last:
            return self._reward(self._first - self._cost(self._last(state)))
        value, factor = 0.0, 1.0
        for before, after in self._walk(state):
            value += factor * self._reward(self._cost(before) - self._cost(after))
            factor *= self._settings.discount
        return value

    def _last(self, state: S) -> S:
        """The state after a roll-out."""
        if self._settings.rounds:
            return self._saturated(state)
        for _, after in self._walk(state):
            state = after
        return state

    def _walk(self, state: S) -> Iterator[tuple[S, S]]:
        """Random actions, up to a number: the states before and after each that changes."""
        actions = list(self._environment.actions(state))
        for _ in range(self._settings.rollout):
            if not actions:
                break
            action = actions[int(self._rng.integers(len(actions)))]
            after = self._step(state, action)
            if after is None:
                if self._settings.strike:
                    actions.remove(action)
                continue
            self._simulated.append(action)
            yield state, after
            state = after

    def _saturated(self, state: S, in_order: bool = False) -> S:
        """All actions in some order, round by round, until none changes anything."""
        changed, actions = True, list(self._environment.actions(state))
        while changed:
            changed = False
            if not in_order:
                self._rng.shuffle(actions)
            for action in actions:
                if self._is_late():
                    return state
                after = self._environment.step(state, action)
                if after is not None:
                    state, changed = after, True
                    self._simulated.append(action)
        return self._environment.filled(state, actions)

    def _is_late(self) -> bool:
        return time.perf_counter() > self._end

    def _reward(self, gain: float) -> float:
        return max(gain, 0.0)

    def _scale(self) -> float:
        """What makes the largest gain that was found 1, or 1."""
        gain = self._first - self._found.cost
        return 1 / gain if self._settings.relative and gain > 0 else 1.0

    def _node(self, state: S) -> _Node:
        if not self._settings.transpositions:
            return _Node(state, list(self._environment.actions(state)))
        if state not in self._nodes:
            self._nodes[state] = _Node(state, list(self._environment.actions(state)))
        return self._nodes[state]

    def _step(self, state: S, action: str) -> S | None:
        key = (state, action)
        if key not in self._steps:
            self._steps[key] = self._environment.step(state, action)
        return self._steps[key]

    def _cost(self, state: S) -> float:
        if state not in self._costs:
            self._idle = 0
            cost = self._costs[state] = self._environment.cost(state)
            if hasattr(self, "_found") and cost < self._found.cost:
                self._found.best, self._found.cost = state, cost
        return self._costs[state]
