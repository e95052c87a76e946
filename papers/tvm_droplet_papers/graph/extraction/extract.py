# SPDX-License-Identifier: Apache-2.0
"""Extraction of operators and layouts by integer programming. Imports no TVM.

Most columns of the integer program concern layouts, and few layouts matter. Therefore, the first
step chooses operators, each at the price of its best layout and with free conversions. Its optimum
is a lower bound on all plans. The second step chooses the layouts of these operators. If both
steps have the same cost, the plan is optimal. Both steps solve independent parts of the problem
separately. If they do not prove optimality, one integer program covers operators and layouts.
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
"""A class and the classes that it needs. Choices that differ only in layouts share it."""


def without_layouts(problem: Problem, kept: Collection[int] = frozenset()) -> Problem:
    """Relax a problem: one layout for most classes, and the lowest price for each operator.

    ``kept``: classes that keep their layouts and conversions. The optimum of the relaxed problem is
    a lower bound: every plan of the original problem, without the conversions of the other classes,
    is also a plan of the relaxed one.
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
    """Restrict a problem to the operators of a ``without_layouts`` plan, in all layouts."""
    chosen = {_operator(step) for step in plan.steps.values() if isinstance(step, Choice)}
    numbers = {number for number, _ in chosen}
    choices = [choice for choice in problem.choices if _operator(choice) in chosen]
    conversions = [step for step in problem.conversions if step.place[0] in numbers]
    return Problem(_cheapest(choices), conversions, problem.roots)


def dearer_classes(plan: Plan, than: Plan) -> set[int]:
    """The classes that cost more in one plan than in another.

    ``plan``: a plan of ``with_operators``. ``than``: the ``without_layouts`` plan that it was
    derived from.
    """
    costs, least = _costs(plan), _costs(than)
    return {number for number, cost in costs.items() if cost > least[number]}


def _costs(plan: Plan) -> dict[int, float]:
    costs: dict[int, float] = {}
    for (number, _), step in plan.steps.items():
        costs[number] = costs.get(number, 0.0) + step.price
    return costs


def _cheapest(choices: list[Choice]) -> list[Choice]:
    """The cheapest choice for each combination of place and needs."""
    cheapest: dict[Hashable, Choice] = {}
    for choice in choices:
        known = cheapest.setdefault((choice.place, choice.needs), choice)
        if choice.price < known.price:
            cheapest[choice.place, choice.needs] = choice
    return list(cheapest.values())


def _operator(choice: Choice) -> _Operator:
    return choice.place[0], tuple(dict.fromkeys(number for number, _ in choice.needs))


GAP = 1e-3
"""The relative optimality gap of a plan. Prices are accurate only to a few percent. For the e-graph
of an LSTM, proving the last 0.1% took seven of eight seconds."""

ROUNDS = 3
"""The maximum number of two-step rounds. After these, one program covers the whole problem."""

MOST_DEARER = 8
"""The maximum number of classes whose layouts matter. With more, the two-step rounds end and one
program covers the whole problem."""


@dataclass
class Extraction:
    """The result of an extraction.

    - ``plan``: the cheapest plan found. None if the roots cannot be computed.
    - ``bound``: a lower bound on the cost of all plans.
    - ``secs``: the duration of the extraction in seconds.
    - ``cuts``: the number of forbidden cycles.
    - ``note``: a description of any problem; empty on success.
    """

    plan: Plan | None
    bound: float = 0.0
    secs: float = 0.0
    cuts: int = 0
    note: str = ""


def extract(problem: Problem, time_limit: float = 20.0, gap: float = GAP) -> Extraction:
    """Find the cheapest plan that computes each class at most once.

    A class that is needed in two layouts is computed in one and converted to the other. (This
    restriction costs nothing in practice. Without it, the linear relaxation halves every demand
    from class to class.) ``time_limit``: the solver's total time limit in seconds. ``gap``: the
    relative gap within which a plan counts as optimal. Returns a plan whenever one exists: if the
    time runs out, the best known plan, or the greedy one.
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
    """Choose operators without layouts, then layouts for these operators.

    Classes that cost more than in the relaxed problem keep their layouts in the next round. Returns
    the best plan with a lower bound on all plans.
    """
    kept: set[int] = set()
    best, bound, cuts = known, 0.0, 0
    for _ in range(ROUNDS):
        relaxed = without_layouts(problem, kept)
        fall_back = tree_greedy(relaxed)
        assert fall_back is not None, "a plan without its layouts is one of these"
        # The gaps of the operator step and of the layout step add up.
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
    """Solve part by part. The remaining time is divided among the remaining parts."""
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
    """Solve operators and layouts in one program. Never return a plan worse than the known one."""
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
