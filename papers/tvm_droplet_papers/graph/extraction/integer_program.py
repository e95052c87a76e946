# SPDX-License-Identifier: Apache-2.0
"""The integer program of an extraction: steps are columns, needs are rows. Imports no TVM.

It selects e-nodes as TENSAT does (Yang et al., MLSys 2021), together with layouts. A row for every
class that all derivations need makes it fast.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from .parts import needed_classes, operands_of
from .problem import Choice, Place, Plan, Problem, Step, needs_of, plan_of

LARGEST_PRICE = 1000.0
"""The largest price after scaling for the solver, whose absolute tolerance is 1e-6."""

EXACT = 1e-9
"""The relative gap of an optimality proof in floating point."""

CUT_ROUNDS = 20
"""The number of rounds that forbid a single cycle. After these, levels forbid all cycles."""


@dataclass
class _Rows:
    """The rows of a linear program, each of the form ``lower <= row``."""

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


class IntegerProgram:
    """The integer program. Its columns are the steps, and later a level for each place."""

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
        """Add the needs of a class's choices. They share rows because only one is chosen."""
        places: dict[Place, list[int]] = {}
        classes: dict[int, list[int]] = {}
        for choice in choices:
            column = self.column[id(choice)]
            for need in choice.needs:
                places.setdefault(need, []).append(column)
            for number in operands_of(choice):
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
        """Forbid choosing all steps of a cycle together."""
        self.cuts += 1
        if self.cuts > CUT_ROUNDS:
            self._add_levels()
        columns = [self.column[id(step)] for step in cycle]
        self.rows.at_least(1 - len(columns), [(column, -1.0) for column in columns])

    def _add_levels(self) -> None:
        """Give each place a level above the levels of all places that its step needs."""
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
        """Return the chosen steps, whether they are optimal within the gap, and a lower bound."""
        count, width = len(self.steps), len(self.steps) + len(self.levels)
        prices = np.array([step.price for step in self.steps] + [0.0] * len(self.levels))
        # The solver's tolerances are absolute. Prices of a few microseconds would be below them.
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


def derive(problem: Problem, picked: list[Step]) -> tuple[Plan | None, list[Step]]:
    """Return the plan that the picked steps form, or else a cycle among them."""
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
