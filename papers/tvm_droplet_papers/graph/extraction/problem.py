# SPDX-License-Identifier: Apache-2.0
"""Extraction as an abstract problem: choices, their needs and their prices. Imports no TVM.

This module also derives two plans without a solver: the greedy plan and the plan of the original
graph. A greedy plan never contains a merged operator, because merging pays off only if several
classes choose it together.
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
"""The seconds added to the price of a binary operator with a weight, divided by the number of steps
before it. Sums commute, so a network of repeated layers has many graphs of equal price. A mixture
of these graphs has several kernels for one layer, each with its own packed copy of the weights."""

Place = tuple[int, Layout]
"""A class in a layout."""


class Choice(NamedTuple):
    """A way to compute a class in a layout.

    - ``place``: the place that it computes.
    - ``needs``: the places that must be computed before, without duplicates. Weights are always
      available and left out.
    - ``price``: its cost.
    - ``what``: the implementation, which the exporter needs.
    """

    place: Place
    needs: tuple[Place, ...]
    price: float
    what: Any = None


class Conversion(NamedTuple):
    """A conversion of a computed class to another layout.

    ``place``: the class in the target layout. ``source``: the class in the source layout.
    ``price``: its cost.
    """

    place: Place
    source: Place
    price: float


Step = Choice | Conversion


@dataclass
class Problem:
    """An extraction problem.

    ``choices``: all choices. ``conversions``: all conversions. ``roots``: the requested places.
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
    """An extracted graph.

    ``steps``: the step for each place that the roots need, operands before their users. ``cost``:
    the sum of the prices of the steps. ``optimal``: whether the plan is proven to be the cheapest.
    """

    steps: dict[Place, Step]
    cost: float
    optimal: bool = False


def plan_of(problem: Problem, steps: dict[Place, Step], optimal: bool = False) -> Plan | None:
    """Make a plan from one step for each place.

    ``steps``: a step for each place in use; unused entries are ignored. ``optimal``: whether the
    plan is known to be optimal. Returns None if a step is missing or if the steps form a cycle.
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
    """The places that a step needs."""
    return step.needs if isinstance(step, Choice) else (step.source,)


def problem_of(graph: EGraph, roots: Iterable[int], price: Price, layouts: bool = True) -> Problem:
    """Make the extraction problem for some classes of an e-graph.

    ``roots``: the requested classes, in the layout of their types. ``price``: prices kernels and
    conversions. ``layouts``: whether layouts may change. The problem leaves out classes that depend
    only on weights, because they cost nothing, and classes that the roots cannot reach.
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
    """Add ``LATE_SECS`` to the prices of arithmetic with a weight: the earlier, the costlier."""
    heights = _heights(choices)

    def priced(choice: Choice) -> Choice:
        if choice.what.operator.name not in BINARY or len(choice.needs) != 1:
            return choice
        height = heights.get(choice.needs[0][0], 1)
        return choice._replace(price=choice.price + LATE_SECS / height)

    return [priced(choice) for choice in choices]


def _heights(choices: list[Choice]) -> dict[int, int]:
    """The minimum depth of a derivation of each class, in steps; at least 1."""
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
    """Choose the cheapest tree for each place; shared subtrees count once for each use.

    Dijkstra's algorithm on a grammar (Knuth, "A generalization of Dijkstra's algorithm", 1977).
    Returns None if the roots cannot be computed.
    """
    steps: list[Step] = [*problem.choices, *problem.conversions]
    missing = [set(needs_of(step)) for step in steps]
    cost = [step.price for step in steps]
    users: dict[Place, list[int]] = {}
    for number, needs in enumerate(missing):
        for need in needs:
            users.setdefault(need, []).append(number)
    chosen: dict[Place, Step] = {}
    # Prices are nonnegative, so the cheapest step on the heap is final.
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
    """The plan of the original graph: the given e-nodes without layout changes.

    ``first``: the e-node that each class was imported with. Returns None if the problem lacks one
    of these e-nodes.
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
