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
"""Extraction by integer programs, of operators and layouts together. Imports no TVM.

Instruction selection in an e-graph (TENSAT, Yang et al., MLSys 2021) with layouts as a part of
what is selected. What makes it fast is a row for every class that all derivations need.
"""

import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from .greedy import tree_greedy
from .problem import Choice, Place, Plan, Problem, Step, needs_of, plan_of
from .two_steps import dearer_classes, with_operators, without_layouts

LARGEST_PRICE = 1000.0
"""What the largest price is scaled to for the solver, which stops 1e-6 from the optimum."""

GAP = 1e-3
"""The share of its cost by which a plan may miss the cheapest one: prices are known to percents.
For the e-graph of an LSTM, the proof of the last 0.1% took seven of eight seconds."""

EXACT = 1e-9
"""The gap of a proof in floating point."""

ROUNDS = 3
"""The most rounds of extraction in two steps; after these, all is one program."""

MOST_DEARER = 8
"""Where the layouts of more classes matter, all is one program at once."""

CUT_ROUNDS = 20
"""Cycles are forbidden one by one for so many rounds, and all at once after that."""


@dataclass
class Extraction:
    """What extraction found.

    Attributes
    ----------
    plan : Plan or None
        The cheapest plan that was found. None if the roots cannot be computed.
    bound : float
        No plan is cheaper.
    secs : float
        Seconds that it took.
    cuts : int
        Cycles that had to be forbidden.
    note : str
        What went wrong; empty if nothing did.
    """

    plan: Plan | None
    bound: float = 0.0
    secs: float = 0.0
    cuts: int = 0
    note: str = ""


@dataclass
class _Rows:
    """Rows of a linear program: lower <= row <= upper."""

    values: list[float] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    lower: list[float] = field(default_factory=list)

    def at_least(self, bound: float, terms: Iterable[tuple[int, float]]) -> None:
        for column, value in terms:
            self.columns.append(column)
            self.values.append(value)
        self.starts.append(len(self.columns))
        self.lower.append(bound)

    def constraint(self, width: int) -> LinearConstraint:
        matrix = csr_matrix(
            (self.values, self.columns, self.starts), shape=(len(self.lower), width)
        )
        return LinearConstraint(matrix, np.array(self.lower), np.inf)


def extract(problem: Problem, time_limit: float = 20.0, gap: float = GAP) -> Extraction:
    """Find the cheapest of the plans that compute each class once.

    A class that is needed in two layouts is computed in one and converted. (Without this limit,
    which costs nothing in practice, the relaxation halves every demand from class to class.)

    Parameters
    ----------
    problem : Problem
        The problem.
    time_limit : float
        Seconds that the solver may take in all.
    gap : float
        The share of its cost by which a plan that counts as optimal may be off.

    Returns
    -------
    extraction : Extraction
        Never without a plan if there is one: where the time is not enough, the best known one, or
        the greedy one.
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
        found = _at_once(problem, found.plan, end, gap)
    note = "" if found.plan.optimal else f"the time limit of {time_limit} s was reached"
    return Extraction(found.plan, found.bound, time.perf_counter() - start, found.cuts, note)


class _Found(NamedTuple):
    plan: Plan
    bound: float
    cuts: int


def _in_two_steps(problem: Problem, known: Plan, end: float, gap: float) -> _Found:
    """The best layouts of the operators that are best without layouts. Classes that turn out to
    cost more than without layouts keep them in the next round.

    Returns
    -------
    found : _Found
        With what bounds all plans.
    """
    kept: set[int] = set()
    best, bound, cuts = known, 0.0, 0
    for _ in range(ROUNDS):
        relaxed = without_layouts(problem, kept)
        fall_back = tree_greedy(relaxed)
        assert fall_back is not None, "a plan without its layouts is one of these"
        # Their gap and that of the layouts add up.
        operators = _at_once(relaxed, fall_back, end, gap / 10)
        bound, cuts = max(bound, operators.bound), cuts + operators.cuts
        rest = with_operators(problem, operators.plan)
        fall_back = tree_greedy(rest)
        if fall_back is None:
            break
        found = _at_once(rest, fall_back, end, gap / 10)
        best, cuts = min(best, found.plan, key=lambda plan: plan.cost), cuts + found.cuts
        dearer = dearer_classes(found.plan, operators.plan)
        is_close = best.cost <= bound * (1 + max(gap, EXACT))
        if is_close or dearer <= kept or len(dearer) > MOST_DEARER:
            break
        kept |= dearer
    is_optimal = best.cost <= bound * (1 + max(gap, EXACT))
    return _Found(replace(best, optimal=is_optimal), bound, cuts)


def _at_once(problem: Problem, known: Plan, end: float, gap: float) -> _Found:
    """Operators and layouts in one program; never a dearer plan than the known one."""
    program = _Program(problem)
    bound = 0.0
    while (left := end - time.perf_counter()) > 0:
        picked, is_optimal, bound = program.solve(left, gap)
        if picked is None:
            break
        plan, cycle = _derive(problem, picked)
        if plan is not None:
            best = min(plan, known, key=lambda each: each.cost)
            return _Found(replace(best, optimal=is_optimal), min(bound, best.cost), program.cuts)
        program.forbid(cycle)
    return _Found(replace(known, optimal=False), bound, program.cuts)


class _Program:
    """The integer program. Columns: the steps, and later a level for each place."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.steps: list[Step] = [*problem.choices, *problem.conversions]
        self.column = {id(step): column for column, step in enumerate(self.steps)}
        self.made: dict[Place, list[int]] = {}
        self.computed: dict[Place, list[int]] = {}
        for column, step in enumerate(self.steps):
            self.made.setdefault(step.place, []).append(column)
            if isinstance(step, Choice):
                self.computed.setdefault(step.place, []).append(column)
        self.rows = _Rows()
        self.cuts = 0
        self.levels: dict[Place, int] = {}
        self._add_demands()
        self._add_needed()

    def _add_demands(self) -> None:
        rows = self.rows
        for root in self.problem.roots:
            rows.at_least(1, [(column, 1.0) for column in self.made.get(root, [])])
        for choices in self.problem.by_class.values():
            columns = [self.column[id(choice)] for choice in choices]
            rows.at_least(-1, [(column, -1.0) for column in columns])
            self._add_demands_of(choices)
        for conversion in self.problem.conversions:
            terms = [(column, 1.0) for column in self.computed.get(conversion.source, [])]
            rows.at_least(0, [*terms, (self.column[id(conversion)], -1.0)])

    def _add_demands_of(self, choices: list[Choice]) -> None:
        """What the choices of a class need. As it is computed once, they share their rows."""
        places: dict[Place, list[int]] = {}
        classes: dict[int, list[int]] = {}
        for choice in choices:
            column = self.column[id(choice)]
            for need in choice.needs:
                places.setdefault(need, []).append(column)
            for number in _operands(choice):
                classes.setdefault(number, []).append(column)
        for need, using in places.items():
            terms = [(column, 1.0) for column in self.made.get(need, [])]
            self.rows.at_least(0, terms + [(column, -1.0) for column in using])
        for number, using in classes.items():
            supply = self.problem.by_class.get(number, [])
            terms = [(self.column[id(choice)], 1.0) for choice in supply]
            self.rows.at_least(0, terms + [(column, -1.0) for column in using])

    def _add_needed(self) -> None:
        needed = needed_classes(self.problem)
        for number in sorted(needed):
            choices = self.problem.by_class.get(number, [])
            self.rows.at_least(1, [(self.column[id(choice)], 1.0) for choice in choices])

    def forbid(self, cycle: list[Step]) -> None:
        """Forbid steps that need each other to be chosen together."""
        self.cuts += 1
        if self.cuts > CUT_ROUNDS:
            self._add_levels()
        columns = [self.column[id(step)] for step in cycle]
        self.rows.at_least(1 - len(columns), [(column, -1.0) for column in columns])

    def _add_levels(self) -> None:
        """Give each place a level, above those of what its step needs."""
        if self.levels:
            return
        count = len(self.steps)
        self.levels = {place: count + index for index, place in enumerate(self.made)}
        top = float(len(self.levels))
        for column, step in enumerate(self.steps):
            for need in needs_of(step):
                if need in self.levels:
                    terms = [(self.levels[step.place], 1.0), (self.levels[need], -1.0)]
                    self.rows.at_least(1 - top - 1, [*terms, (column, -top - 1)])

    def solve(self, time_limit: float, gap: float) -> tuple[list[Step] | None, bool, float]:
        """The chosen steps, whether they are proved the cheapest but for the gap, and the bound."""
        count, width = len(self.steps), len(self.steps) + len(self.levels)
        prices = np.array([step.price for step in self.steps] + [0.0] * len(self.levels))
        # The solver's tolerances are absolute: prices of microseconds would be below them.
        scale = max(float(prices.max()), 1e-30) / LARGEST_PRICE
        upper = np.array([1.0] * count + [float(len(self.levels))] * len(self.levels))
        result = milp(
            prices / scale,
            integrality=np.array([1] * count + [0] * len(self.levels)),
            bounds=Bounds(0, upper),
            constraints=self.rows.constraint(width),
            options={"time_limit": time_limit, "mip_rel_gap": max(gap, EXACT)},
        )
        bound = getattr(result, "mip_dual_bound", None)
        known = float(bound) * scale if bound is not None else 0.0
        if result.x is None:
            return None, False, known
        chosen = [step for step, value in zip(self.steps, result.x) if value > 0.5]
        return chosen, result.status == 0, known


def _derive(problem: Problem, picked: list[Step]) -> tuple[Plan | None, list[Step]]:
    """The plan that some steps make, or steps among them that need each other."""
    by_place: dict[Place, list[Step]] = {}
    for step in picked:
        by_place.setdefault(step.place, []).append(step)
    derived: dict[Place, Step] = {}
    changed = True
    while changed:
        changed = False
        for step in picked:
            ready = all(need in derived for need in needs_of(step))
            if step.place not in derived and ready:
                derived[step.place] = step
                changed = True
    plan = plan_of(problem, derived, optimal=True)
    if plan is not None:
        return plan, []
    place = next(root for root in problem.roots if root not in derived)
    path: list[Step] = []
    seen: dict[Hashable, int] = {}
    while place not in seen:
        seen[place] = len(path)
        step = by_place[place][0]
        path.append(step)
        place = next(need for need in needs_of(step) if need not in derived)
    return None, path[seen[place] :]


def needed_classes(problem: Problem) -> set[int]:
    """The classes that every derivation of the roots contains.

    Parameters
    ----------
    problem : Problem
        The problem.

    Returns
    -------
    classes : set[int]
        By the greatest fixpoint of need(c) = {c} and what all e-nodes of c have in common of what
        their operands need. It holds for e-graphs with cycles too, by induction on a derivation.
    """
    numbers = sorted({choice.place[0] for choice in problem.choices})
    bit = {number: 1 << index for index, number in enumerate(numbers)}
    everything = (1 << len(numbers)) - 1
    need = dict.fromkeys(numbers, everything)
    operands = {
        number: list(dict.fromkeys(_operands(choice) for choice in choices))
        for number, choices in problem.by_class.items()
    }
    changed = True
    while changed:
        changed = False
        for number in numbers:
            common = everything
            for children in operands[number]:
                union = 0
                for child in children:
                    union |= need.get(child, 0)
                common &= union
            new = common | bit[number]
            if new != need[number]:
                need[number], changed = new, True
    total = 0
    for number, _ in problem.roots:
        total |= need.get(number, 0)
    return {number for number in numbers if total & bit[number]}


def _operands(choice: Choice) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number for number, _ in choice.needs))
