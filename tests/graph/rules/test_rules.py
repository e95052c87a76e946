# SPDX-License-Identifier: Apache-2.0
"""Every rule, on random cases, by NumPy in float64."""

from itertools import islice

import pytest
from class_values import Unequal, check_values
from rule_cases import cases

from tvm_droplet_ms.graph.interpreter import infer
from tvm_droplet_ms.graph.rules import ALL_RULES
from tvm_droplet_ms.graph.rules.rule import apply_rule

COUNT = 200
MUTANT_COUNT = 600


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.name)
def test_rule_holds(rule):
    fired = compared = 0
    for case, graph in islice(cases(rule, infer), COUNT):
        step = apply_rule(graph, rule)
        assert not step.mistyped
        fired += step.changed
        compared += check_values(graph, case.arrays, 1e-9)
    assert fired >= COUNT // 10
    assert compared >= fired


CONDITIONS = [(rule, name) for rule in ALL_RULES for name in rule.conditions]


@pytest.mark.parametrize(
    ("rule", "name"), CONDITIONS, ids=[f"{rule.name}, {name}" for rule, name in CONDITIONS]
)
def test_rule_is_wrong_without_a_condition(rule, name):
    for case, graph in islice(cases(rule, infer), MUTANT_COUNT):
        try:
            if apply_rule(graph, rule, without=name).mistyped:
                return
            check_values(graph, case.arrays, 1e-9)
        except (Unequal, ValueError):
            return
    pytest.fail(f"no case needs the condition {name!r} of {rule.name!r}")
