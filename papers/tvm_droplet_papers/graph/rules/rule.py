# SPDX-License-Identifier: Apache-2.0
"""Rules, their application, and equality saturation. Imports no TVM."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..equality.egraph import EGraph, IllegalTerm, NodeLimit, OtherType
from ..equality.language import Term
from ..equality.terms import add_term, known_class


class Equality(NamedTuple):
    """A class and a term that is equal to it."""

    number: int
    term: Term | int


class Conditions:
    """The conditions of a rule. A test may disable one of them.

    ``declared``: all conditions of the rule.
    """

    def __init__(self, declared: tuple[str, ...], without: str | None = None) -> None:
        if without is not None and without not in declared:
            raise ValueError(f"there is no condition {without!r}, expected one of {declared}")
        self._declared = declared
        self._without = without

    def __call__(self, name: str, holds: bool) -> bool:
        """True if a condition holds or is disabled."""
        if name not in self._declared:
            raise ValueError(f"condition {name!r} is not declared, these are: {self._declared}")
        return holds or name == self._without


Matches = Callable[[EGraph, Conditions], Iterator[Equality]]


@dataclass(frozen=True)
class Rule:
    """A rule.

    - ``family``: one of "fold", "linear", "subsample", "merge" and "move".
    - ``matches``: yields the equalities that the rule finds in an e-graph. It checks the conditions
      and does not change the e-graph.
    - ``conditions``: the names of the conditions under which the equalities are true. Profitability
      is not a condition.
    - ``exact``: whether both sides agree to the last bit. Inexact rules apply only to float32 and
      float64.
    """

    name: str
    family: str
    matches: Matches
    conditions: tuple[str, ...]
    exact: bool


def declare(
    family: str, name: str, matches: Matches, *conditions: str, exact: bool = False
) -> Rule:
    """Make a rule; see :class:`Rule` for the parameters."""
    return Rule(name, family, matches, conditions, exact)


class Step(NamedTuple):
    """The outcome of applying a rule.

    - ``matched``: the number of legal equalities that the rule found.
    - ``changed``: whether the e-graph changed.
    - ``full``: whether the e-node limit cut the application short.
    - ``mistyped``: the number of equalities that were skipped because their sides have different
      types. Each one is a fault of the rule.
    """

    matched: int
    changed: bool
    full: bool
    mistyped: int = 0


FLOATS = ("float32", "float64")


def apply_rule(graph: EGraph, rule: Rule, without: str | None = None) -> Step:
    """Apply a rule to all its matches, once.

    ``graph``: the e-graph, rebuilt. It grows up to its limit and is rebuilt again. ``without``: a
    condition to disable, for tests only, because the e-graph is wrong afterwards. Returns the
    outcome.
    """
    found = rule.matches(graph, Conditions(rule.conditions, without))
    return apply_equalities(graph, rule, list(found))


def new_equalities(graph: EGraph, rule: Rule) -> list[Equality]:
    """The equalities of a rule that a rebuilt e-graph does not contain yet."""
    found = rule.matches(graph, Conditions(rule.conditions))
    return [one for one in found if known_class(graph, one.term) != graph.find(one.number)]


def apply_equalities(graph: EGraph, rule: Rule, found: Iterable[Equality]) -> Step:
    """Apply the given equalities of a rule; see ``apply_rule``."""
    before, matched, joined, full, mistyped = _sizes(graph), 0, False, False, 0
    for number, term in found:
        type_ = graph.facts(number).type
        if not rule.exact and getattr(type_, "dtype", None) not in FLOATS:
            continue
        try:
            added = add_term(graph, term, type_)
        except OtherType:
            mistyped += 1
            continue
        except IllegalTerm:
            continue
        except NodeLimit:
            full = True
            break
        matched += 1
        joined = graph.union(number, added) or joined
    graph.rebuild()
    return Step(matched, joined or _sizes(graph) != before, full, mistyped)


def _sizes(graph: EGraph) -> tuple[int, int]:
    return graph.size, graph.weight_size


@dataclass
class Saturation:
    """The outcome of a saturation.

    - ``complete``: whether no rule can change the e-graph any more.
    - ``rounds``: the number of rounds.
    - ``applied``: how often each rule changed the e-graph, by name, for rules that did so.
    - ``mistyped``: the maximum number of equalities per round whose sides have different types, by
      rule name, for rules with such faults. These equalities are skipped.
    """

    complete: bool = False
    rounds: int = 0
    applied: dict[str, int] = field(default_factory=dict)
    mistyped: dict[str, int] = field(default_factory=dict)


def saturate(
    graph: EGraph, rules: Sequence[Rule], max_rounds: int = 50, time_limit: float = 60.0
) -> Saturation:
    """Apply all rules until nothing new appears, the e-graph is full, or the time is over.

    ``graph``: the e-graph, rebuilt, with a limit. It is modified. ``time_limit``: the seconds after
    which no further rule is applied. Returns the outcome.
    """
    result = Saturation()
    end = time.perf_counter() + time_limit
    for _ in range(max_rounds):
        result.rounds += 1
        changed = False
        for rule in rules:
            if time.perf_counter() > end:
                return result
            step = apply_rule(graph, rule)
            if step.mistyped:
                result.mistyped[rule.name] = max(result.mistyped.get(rule.name, 0), step.mistyped)
            if step.changed:
                changed = True
                result.applied[rule.name] = result.applied.get(rule.name, 0) + 1
            if step.full:
                return result
        if not changed:
            result.complete = True
            return result
    return result
