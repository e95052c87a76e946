# SPDX-License-Identifier: Apache-2.0
"""Plans that bound and replace the exact one: greedy, and the graph as it came. Imports no TVM.

A greedy plan has no merged operator, which pays only if several classes choose it together.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from .problem import Place, Plan, Problem, Step, needs_of, plan_of


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
