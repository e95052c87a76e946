# SPDX-License-Identifier: Apache-2.0
"""Equality saturation: all rules, round by round, under a limit. Imports no TVM."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .equality.egraph import EGraph
from .rules.rule import Rule, apply_rule


@dataclass
class Saturation:
    """The end of a saturation.

    - ``complete``: whether no rule adds anything any more.
    - ``rounds``: how many rounds it took.
    - ``applied``: how often each rule changed the e-graph, by name. Only rules that did.
    - ``mistyped``: how many equalities of each rule had sides of different types, by name: faults
      of rules, which are passed over. Only rules that have any.
    """

    complete: bool = False
    rounds: int = 0
    applied: dict[str, int] = field(default_factory=dict)
    mistyped: dict[str, int] = field(default_factory=dict)


def saturate(
    graph: EGraph, rules: Sequence[Rule], max_rounds: int = 50, time_limit: float = 60.0
) -> Saturation:
    """Apply all rules until nothing new appears, the e-graph is full, or the time is over.

    ``graph``: the e-graph, rebuilt, with a limit. It is changed. ``time_limit``: seconds, after
    which no further rule is applied. Returns how it ended.
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
