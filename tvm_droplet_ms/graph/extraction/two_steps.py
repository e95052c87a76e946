# SPDX-License-Identifier: Apache-2.0
"""Operators first and their layouts then: extraction in two steps. Imports no TVM.

Most of an integer program is about layouts, and few of them matter. So operators are chosen first,
each at the price of its best layout and with free conversions: no plan is cheaper than that. Then
the layouts of these operators are chosen. Where both cost the same, the plan is the cheapest.
"""

from collections.abc import Collection, Hashable

from .problem import Choice, Place, Plan, Problem

_ANY = ()
_Operator = tuple[int, tuple[int, ...]]
"""A class and the classes that are needed: choices that differ in layouts alone have the same."""


def without_layouts(problem: Problem, kept: Collection[int] = frozenset()) -> Problem:
    """The problem with one layout for most classes; each operator has its least price.

    ``kept``: classes that keep their layouts and their conversions. Its optimum is a lower bound:
    each plan of the problem, without the conversions of other classes, is one of this.
    """

    def place(old: Place) -> Place:
        return old if old[0] in kept else (old[0], _ANY)

    choices = [
        Choice(place(choice.place), tuple(dict.fromkeys(map(place, choice.needs))), choice.price)
        for choice in problem.choices
    ]
    conversions = [step for step in problem.conversions if step.place[0] in kept]
    roots = list(dict.fromkeys(map(place, problem.roots)))
    return Problem(_cheapest(choices), conversions, roots)


def with_operators(problem: Problem, plan: Plan) -> Problem:
    """The problem with the operators of a plan of ``without_layouts`` alone, in all layouts."""
    chosen = {_operator(step) for step in plan.steps.values() if isinstance(step, Choice)}
    numbers = {number for number, _ in chosen}
    choices = [choice for choice in problem.choices if _operator(choice) in chosen]
    conversions = [step for step in problem.conversions if step.place[0] in numbers]
    return Problem(_cheapest(choices), conversions, problem.roots)


def dearer_classes(plan: Plan, than: Plan) -> set[int]:
    """The classes that cost more in a plan than in another one.

    ``plan``: a plan of ``with_operators``. ``than``: the plan of ``without_layouts`` that it is
    made of.
    """
    costs, least = _costs(plan), _costs(than)
    return {number for number, cost in costs.items() if cost > least[number]}


def _costs(plan: Plan) -> dict[int, float]:
    costs: dict[int, float] = {}
    for (number, _), step in plan.steps.items():
        costs[number] = costs.get(number, 0.0) + step.price
    return costs


def _cheapest(choices: list[Choice]) -> list[Choice]:
    """Of choices that make the same of the same, the cheapest."""
    cheapest: dict[Hashable, Choice] = {}
    for choice in choices:
        known = cheapest.setdefault((choice.place, choice.needs), choice)
        if choice.price < known.price:
            cheapest[choice.place, choice.needs] = choice
    return list(cheapest.values())


def _operator(choice: Choice) -> _Operator:
    return choice.place[0], tuple(dict.fromkeys(number for number, _ in choice.needs))
