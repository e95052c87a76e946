# SPDX-License-Identifier: Apache-2.0
"""Every rule, on random cases, by NumPy in float64."""

from itertools import islice

import numpy as np
import pytest
from case_maker import CaseMaker
from class_values import Unequal, check_values
from rule_cases import cases

from tvm_droplet_papers.graph.interpreter import infer
from tvm_droplet_papers.graph.rules import ALL_RULES
from tvm_droplet_papers.graph.rules.rule import apply_rule
from tvm_droplet_papers.graph.rules.terms import call

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


def test_the_sum_of_a_stack_of_many_is_no_deep_term():
    """One addition in another would be deeper than Python's recursion."""
    make = CaseMaker(np.random.default_rng(0))
    parts = [make.input(2) for _ in range(512)]
    case = make.case(call("sum", call("stack", *parts, axis=0), axis=(0,), keepdims=False))
    graph = case.graph(infer)
    (rule,) = [rule for rule in ALL_RULES if rule.name == "sum of a stack"]
    assert apply_rule(graph, rule).changed
    assert len(graph.named("add")) == 511
    assert check_values(graph, case.arrays, 1e-9) > 0
