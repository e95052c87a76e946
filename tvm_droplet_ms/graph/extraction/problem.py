# SPDX-License-Identifier: Apache-2.0
"""Extraction as an abstract problem: choices, their needs and their prices. Imports no TVM.

Plans that bound and replace the exact one are here too: the greedy one, and the graph as it came.
A greedy plan has no merged operator, which pays only if several classes choose it together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from ..equality.egraph import EGraph
from ..equality.language import BINARY, Tensor
from .implementations import AS_TYPED, Implementations, Layout
from .prices import Price

LATE_SECS = 1e-7
"""Added to the price of a sum or product with a weight, divided by the steps before it.
Sums commute, so that a network of repeated layers has many graphs of one price. A mixture of these
has several kernels for one layer, each with a packed copy of its weights."""

Place = tuple[int, Layout]
"""A class in a layout."""


class Choice(NamedTuple):
    """A way to compute a class in a layout.

    - ``place``: what is computed.
    - ``needs``: what has to be there before, each once. Weights are: they are left out.
    - ``price``: what it costs.
    - ``what``: the implementation, for whoever writes the graph.
    """

    place: Place
    needs: tuple[Place, ...]
    price: float
    what: Any = None


class Conversion(NamedTuple):
    """A change of the layout of a class that was computed in another one.

    ``price``: what it costs.
    """

    place: Place
    source: Place
    price: float


Step = Choice | Conversion


@dataclass
class Problem:
    """The choices of an extraction.

    ``choices``: all choices. ``conversions``: all conversions. ``roots``: what is wanted.
    """

    choices: list[Choice]
    conversions: list[Conversion]
    roots: list[Place]
    by_place: dict[Place, list[Choice]] = field(init=False)
    by_class: dict[int, list[Choice]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_place, self.by_class = {}, {}
        for choice in self.choices:
            self.by_place.setdefault(choice.place, []).append(choice)
            self.by_class.setdefault(choice.place[0], []).append(choice)


@dataclass
class Plan:
    """A graph that was extracted.

    ``steps``: how each place is made: only what the roots need, operands before what uses them.
    ``cost``: the sum of the prices of the steps. ``optimal``: whether no cheaper plan exists, by
    proof.
    """

    steps: dict[Place, Step]
    cost: float
    optimal: bool = False


def plan_of(problem: Problem, steps: dict[Place, Step], optimal: bool = False) -> Plan | None:
    """The plan that a step for each place makes.

    ``steps``: a step for each place that is used. Others do no harm. ``optimal``: what is known of
    it. None if something is missing, or needs itself.
    """
    ordered: dict[Place, Step] = {}
    entered: set[Place] = set()
    stack: list[tuple[Place, bool]] = [(root, False) for root in reversed(problem.roots)]
    while stack:
        place, left = stack.pop()
        if place in ordered:
            continue
        step = steps.get(place)
        if step is None:
            return None
        if left:
            ordered[place] = step
            continue
        if place in entered:
            return None
        entered.add(place)
        stack.append((place, True))
        stack += [(need, False) for need in reversed(needs_of(step)) if need not in ordered]
        if any(need in entered and need not in ordered for need in needs_of(step)):
            return None
    return Plan(ordered, sum(step.price for step in ordered.values()), optimal)


def needs_of(step: Step) -> tuple[Place, ...]:
    """The classes that a step needs."""
    return step.needs if isinstance(step, Choice) else (step.source,)


def problem_of(graph: EGraph, roots: Iterable[int], price: Price, layouts: bool = True) -> Problem:
    """Pose the extraction of some classes of an e-graph.

    ``roots``: the classes wanted, in the layout of their types. ``price``: prices kernels and
    conversions. ``layouts``: whether layouts may change. Returns classes that depend on weights
    alone are left out: they cost nothing. So are those that the roots cannot reach.
    """
    implementations = Implementations(graph, layouts)
    wanted = [graph.find(root) for root in roots]
    classes = _reachable(graph, wanted)
    choices: list[Choice] = []
    offered: dict[int, set[Layout]] = {}
    asked: dict[int, set[Layout]] = {}
    for root in wanted:
        asked.setdefault(root, set()).add(AS_TYPED)
    for number in classes:
        for node in graph.nodes(number):
            for way in implementations.of(node):
                pairs = zip(node.children, way.operands, strict=True)
                needs = dict.fromkeys(
                    (graph.find(child), layout)
                    for child, layout in pairs
                    if not graph.is_weight(child)
                )
                if (number, way.result) in needs:
                    continue
                for child, layout in needs:
                    asked.setdefault(child, set()).add(layout)
                offered.setdefault(number, set()).add(way.result)
                cost = price.kernel(graph, number, way)
                choices.append(Choice((number, way.result), tuple(needs), cost, way))
    conversions = []
    for number in classes:
        type_ = graph.facts(number).type
        if not isinstance(type_, Tensor):
            continue
        for source in sorted(offered.get(number, ())):
            for target in sorted(asked.get(number, ())):
                if source != target and type_.rank in (len(source), len(target)):
                    cost = price.conversion(type_, source, target)
                    conversions.append(Conversion((number, target), (number, source), cost))
    return Problem(
        _weights_late(choices),
        conversions,
        [(root, AS_TYPED) for root in dict.fromkeys(wanted) if not graph.is_weight(root)],
    )


def _weights_late(choices: list[Choice]) -> list[Choice]:
    """The choices, where adding or multiplying a weight costs the more the earlier it is done."""
    heights = _heights(choices)

    def priced(choice: Choice) -> Choice:
        if choice.what.operator.name not in BINARY or len(choice.needs) != 1:
            return choice
        height = heights.get(choice.needs[0][0], 1)
        return choice._replace(price=choice.price + LATE_SECS / height)

    return [priced(choice) for choice in choices]


def _heights(choices: list[Choice]) -> dict[int, int]:
    """The fewest steps, one after the other, that compute a class; at least 1."""
    heights: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for choice in choices:
            number = choice.place[0]
            below = [heights.get(need) for need, _ in choice.needs]
            known = [height for height in below if height is not None]
            if len(known) < len(below):
                continue
            height = max(known, default=0) + 1
            if number not in heights or height < heights[number]:
                heights[number], changed = height, True
    return heights


def _reachable(graph: EGraph, roots: list[int]) -> list[int]:
    seen = dict.fromkeys(root for root in roots if not graph.is_weight(root))
    waiting = list(seen)
    while waiting:
        for node in graph.nodes(waiting.pop()):
            for child in map(graph.find, node.children):
                if child not in seen and not graph.is_weight(child):
                    seen[child] = None
                    waiting.append(child)
    return sorted(seen)


def tree_greedy(problem: Problem) -> Plan | None:
    """Choose the cheapest tree for each place; what is shared counts once for each use.

    Dijkstra's algorithm on a grammar (Knuth, "A generalization of Dijkstra's algorithm", 1977).
    None if the roots cannot be computed.
    """
    steps: list[Step] = [*problem.choices, *problem.conversions]
    missing = [set(needs_of(step)) for step in steps]
    cost = [step.price for step in steps]
    users: dict[Place, list[int]] = {}
    for number, needs in enumerate(missing):
        for need in needs:
            users.setdefault(need, []).append(number)
    chosen: dict[Place, Step] = {}
    # No price is negative: what is cheapest of what can be made now will not get cheaper.
    heap = [(cost[number], number) for number, needs in enumerate(missing) if not needs]
    heapify(heap)
    while heap:
        least, number = heappop(heap)
        place = steps[number].place
        if place in chosen:
            continue
        chosen[place] = steps[number]
        for user in users.get(place, ()):
            missing[user].discard(place)
            cost[user] += least
            if not missing[user]:
                heappush(heap, (cost[user], user))
    return plan_of(problem, chosen)


def as_it_is(problem: Problem, first: Mapping[int, object]) -> Plan | None:
    """The plan that computes some e-nodes as they are typed: the graph that went in.

    ``first``: the e-node that each class was imported with. None if the e-graph has lost it.
    """
    steps: dict[Place, Step] = {}
    for choice in problem.choices:
        number, layout = choice.place
        if (
            layout == ()
            and choice.what.node == first.get(number)
            and choice.what.operator == (choice.what.node.operator)
        ):
            steps.setdefault(choice.place, choice)
    return plan_of(problem, steps)
