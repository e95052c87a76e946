# SPDX-License-Identifier: Apache-2.0
"""Extraction by integer programs, of operators and layouts together. Imports no TVM.

Most of an integer program is about layouts, and few of them matter. So operators are chosen first,
each at the price of its best layout and with free conversions: no plan is cheaper than that. Then
the layouts of these operators are chosen. Where both cost the same, the plan is the cheapest. Each
is done part by part where a problem has parts that do not depend on each other. What that does not
prove to be the cheapest is one program.
"""

import time
from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from typing import NamedTuple

from .integer_program import EXACT, IntegerProgram, derive
from .parts import independent_parts, needed_classes
from .problem import Choice, Place, Plan, Problem, Step, tree_greedy

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


GAP = 1e-3
"""The share of its cost by which a plan may miss the cheapest one: prices are known to percents.
For the e-graph of an LSTM, the proof of the last 0.1% took seven of eight seconds."""

ROUNDS = 3
"""The most rounds of extraction in two steps; after these, all is one program."""

MOST_DEARER = 8
"""The most classes whose layouts matter: with more, all is one program at once."""


@dataclass
class Extraction:
    """The result of an extraction.

    - ``plan``: the cheapest plan that was found. None if the roots cannot be computed.
    - ``bound``: no plan is cheaper.
    - ``secs``: seconds that it took.
    - ``cuts``: cycles that had to be forbidden.
    - ``note``: what went wrong; empty if nothing did.
    """

    plan: Plan | None
    bound: float = 0.0
    secs: float = 0.0
    cuts: int = 0
    note: str = ""


def extract(problem: Problem, time_limit: float = 20.0, gap: float = GAP) -> Extraction:
    """Find the cheapest of the plans that compute each class once.

    A class that is needed in two layouts is computed in one and converted. (Without this limit,
    which costs nothing in practice, the relaxation halves every demand from class to class.)
    ``time_limit``: seconds that the solver may take in all. ``gap``: the share of its cost by which
    a plan that counts as optimal may be off. Returns never without a plan if there is one: where
    the time is not enough, the best known one, or the greedy one.
    """
    start = time.perf_counter()
    end = start + time_limit
    known = tree_greedy(problem)
    if known is None:
        return Extraction(None, note="the roots cannot be computed")
    if not problem.roots:
        return Extraction(Plan({}, 0.0, True))
    found = _Found(known, 0.0, 0)
    if problem.conversions:
        found = _in_two_steps(problem, known, end, gap)
    if not found.plan.optimal:
        found = _in_parts(problem, found.plan, end, gap)
    note = "" if found.plan.optimal else f"the time limit of {time_limit} s was reached"
    return Extraction(found.plan, found.bound, time.perf_counter() - start, found.cuts, note)


class _Found(NamedTuple):
    plan: Plan
    bound: float
    cuts: int


def _in_two_steps(problem: Problem, known: Plan, end: float, gap: float) -> _Found:
    """The best layouts of the operators that are best without layouts. Classes that turn out to
    cost more than without layouts keep them in the next round.

    With what bounds all plans.
    """
    kept: set[int] = set()
    best, bound, cuts = known, 0.0, 0
    for _ in range(ROUNDS):
        relaxed = without_layouts(problem, kept)
        fall_back = tree_greedy(relaxed)
        assert fall_back is not None, "a plan without its layouts is one of these"
        # Their gap and that of the layouts add up.
        operators = _in_parts(relaxed, fall_back, end, gap / 10)
        bound, cuts = max(bound, operators.bound), cuts + operators.cuts
        rest = with_operators(problem, operators.plan)
        fall_back = tree_greedy(rest)
        if fall_back is None:
            break
        found = _in_parts(rest, fall_back, end, gap / 10)
        best, cuts = min(best, found.plan, key=lambda plan: plan.cost), cuts + found.cuts
        dearer = dearer_classes(found.plan, operators.plan)
        is_close = best.cost <= bound * (1 + max(gap, EXACT))
        if is_close or dearer <= kept or len(dearer) > MOST_DEARER:
            break
        kept |= dearer
    is_optimal = best.cost <= bound * (1 + max(gap, EXACT))
    return _Found(replace(best, optimal=is_optimal), bound, cuts)


def _in_parts(problem: Problem, known: Plan, end: float, gap: float) -> _Found:
    """Part by part, with the time that is left divided among the parts that are left."""
    parts = independent_parts(problem, needed_classes(problem))
    if len(parts) == 1:
        return _at_once(problem, known, end, gap)
    steps: list[Step] = []
    bound, cuts, is_optimal = 0.0, 0, True
    for index, part in enumerate(parts):
        fall_back = tree_greedy(part.problem)
        assert fall_back is not None, "the known plan has one of each part"
        now = time.perf_counter()
        share = (end - now) / (len(parts) - index)
        found = _at_once(part.problem, fall_back, now + share, gap)
        steps += part.in_full(found.plan.steps.values())
        bound, cuts = bound + found.bound, cuts + found.cuts
        is_optimal = is_optimal and found.plan.optimal
    plan, _ = derive(problem, steps)
    if plan is None:
        # Steps of different parts need each other.
        return _at_once(problem, known, end, gap)
    best = min(plan, known, key=lambda each: each.cost)
    return _Found(replace(best, optimal=is_optimal), min(bound, best.cost), cuts)


def _at_once(problem: Problem, known: Plan, end: float, gap: float) -> _Found:
    """Operators and layouts in one program; never a dearer plan than the known one."""
    program = IntegerProgram(problem)
    bound = 0.0
    while (left := end - time.perf_counter()) > 0:
        picked, is_optimal, bound = program.solve(left, gap)
        if picked is None:
            break
        plan, cycle = derive(problem, picked)
        if plan is not None:
            best = min(plan, known, key=lambda each: each.cost)
            return _Found(replace(best, optimal=is_optimal), min(bound, best.cost), program.cuts)
        program.forbid(cycle)
    return _Found(replace(known, optimal=False), bound, program.cuts)
