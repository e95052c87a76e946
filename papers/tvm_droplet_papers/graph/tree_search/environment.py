# SPDX-License-Identifier: Apache-2.0
"""The tree-search environment of an e-graph, where a step applies one rule. Imports no TVM."""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..equality.egraph import EGraph
from ..equality.language import COMMUTATIVE, Node, Operator
from ..rules.rule import Rule, apply_equalities, new_equalities


def fingerprint(graph: EGraph, origin: int) -> int:
    """A hash that is equal for equal e-graphs that grew from copies of a common ancestor.

    ``graph``: the e-graph, rebuilt. ``origin``: the ancestor's ``EGraph.count``. Classes of the
    ancestor are named by their numbers. Newer classes are named after their e-nodes, because their
    numbers depend on the order of rule applications.
    """
    classes = dict(graph.classes())
    names = {number: number for number in classes if number < origin}
    waiting = [number for number in classes if number >= origin]
    while waiting:
        found: dict[int, int] = {}
        for number in waiting:
            named = [
                hash(_named_key(node, names))
                for node in classes[number]
                if all(child in names for child in node.children)
            ]
            if named:
                found[number] = min(named)
        names |= found
        waiting = [number for number in waiting if number not in found]
    return hash(
        frozenset(
            (_named_key(node, names), names[number])
            for number, nodes in classes.items()
            for node in nodes
        )
    )


def _named_key(node: Node, names: dict[int, int]) -> tuple[Operator, tuple[int, ...]]:
    children = [names[child] for child in node.children]
    commutes = node.operator.name in COMMUTATIVE
    return node.operator, tuple(sorted(children) if commutes else children)


class GraphState:
    """A search state: an immutable e-graph, and the rules that led to it.

    ``origin``: the ``EGraph.count`` of the e-graph that the search started with. ``path``: the
    names of the applied rules.
    """

    def __init__(self, graph: EGraph, origin: int, path: tuple[str, ...] = ()) -> None:
        self.graph = graph
        self.origin = origin
        self.path = path

    @cached_property
    def key(self) -> int:
        """A hash that equal states share. Computing it takes as long as a step."""
        return fingerprint(self.graph, self.origin)

    def __hash__(self) -> int:
        return self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphState) and other.key == self.key


class GraphEnvironment:
    """Rules as actions on e-graphs.

    ``cost``: the price of the best graph in an e-graph.
    """

    def __init__(self, rules: Sequence[Rule], cost: Callable[[EGraph], float]) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._cost = cost

    def actions(self, state: GraphState) -> Sequence[str]:
        """The names of all rules. Only a step finds out whether a rule matches."""
        return list(self._rules)

    def step(self, state: GraphState, action: str) -> GraphState | None:
        """The state after a rule; None if the rule changes nothing or exceeds the limit."""
        rule = self._rules[action]
        found = new_equalities(state.graph, rule)
        if not found:
            return None
        graph = state.graph.copy()
        step = apply_equalities(graph, rule, found)
        if not step.changed or step.full:
            return None
        return GraphState(graph, state.origin, (*state.path, action))

    def filled(
        self,
        state: GraphState,
        actions: Sequence[str],
        parts: int = 1,
        generator: np.random.Generator | None = None,
    ) -> GraphState:
        """Apply rules to a state, in order, as far as the limit allows.

        If the limit is reached in the middle of the rules, all layers have only the first rules.
        With several parts, some layers have all rules instead, which may be worth more.

        - ``actions``: the names of the rules, in order.
        - ``parts``: the number of parts into which the original classes are divided. Each part
          consists of consecutive classes. All rules are applied to one part until none matches,
          then to the next part.
        - ``generator``: draws the boundaries and the order of the parts. None: the parts have equal
          sizes and their natural order.
        """
        graph, path = state.graph.copy(), list(state.path)
        divided = _parts(state.origin, parts, generator) if parts > 1 else []
        for part in [*divided, None]:
            if self._apply(graph, actions, part, path):
                break
        changed = len(path) > len(state.path)
        return GraphState(graph, state.origin, tuple(path)) if changed else state

    def _apply(
        self, graph: EGraph, actions: Sequence[str], part: range | None, path: list[str]
    ) -> bool:
        """Apply rules to a part until none matches, or once to the whole e-graph.

        Returns whether the e-graph is full.
        """
        first, changed = graph.count, True
        while changed:
            changed = False
            for name in actions:
                rule = self._rules[name]
                found = new_equalities(graph, rule)
                if part is not None:
                    inside = {graph.find(number) for number in (*part, *range(first, graph.count))}
                    found = [one for one in found if graph.find(one.number) in inside]
                if not found:
                    continue
                step = apply_equalities(graph, rule, found)
                path += [name] * step.changed
                changed = changed or step.changed
                if step.full:
                    return True
            if part is None:
                break
        return False

    def cost(self, state: GraphState) -> float:
        """The price of the best graph in a state."""
        return self._cost(state.graph)


def _parts(count: int, parts: int, generator: np.random.Generator | None) -> list[range]:
    size = max(1, -(-count // parts))
    start = size if generator is None else int(generator.integers(1, size + 1))
    bounds = [0, *range(start, count, size), count]
    found = [range(a, b) for a, b in pairwise(bounds)]
    if generator is not None:
        generator.shuffle(found)
    return found
