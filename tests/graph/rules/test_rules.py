# SPDX-License-Identifier: Apache-2.0
"""Every rule, on random cases, by NumPy in float64."""

import zlib

import numpy as np
import pytest
from class_values import Unequal, check_values

from tvm_droplet_ms.graph.cases import CaseMaker
from tvm_droplet_ms.graph.equality.facts import IllegalTerm
from tvm_droplet_ms.graph.interpreter import infer
from tvm_droplet_ms.graph.rules import ALL_RULES
from tvm_droplet_ms.graph.rules.rule import apply_rule

CASES = 200
MUTANT_CASES = 600


def cases(rule, count):
    rng = np.random.default_rng(zlib.crc32(rule.name.encode()))
    while count:
        case = rule.case(CaseMaker(rng))
        try:
            graph = case.graph(infer)
        except IllegalTerm:
            continue
        graph.rebuild()
        count -= 1
        yield case, graph


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.name)
def test_rule_holds(rule):
    fired = compared = 0
    for case, graph in cases(rule, CASES):
        step = apply_rule(graph, rule)
        assert not step.mistyped
        fired += step.changed
        compared += check_values(graph, case.arrays, 1e-9)
    assert fired >= CASES // 10
    assert compared >= fired


CONDITIONS = [(rule, name) for rule in ALL_RULES for name in rule.conditions]


@pytest.mark.parametrize(
    ("rule", "name"), CONDITIONS, ids=[f"{rule.name}, {name}" for rule, name in CONDITIONS]
)
def test_rule_is_wrong_without_a_condition(rule, name):
    for case, graph in cases(rule, MUTANT_CASES):
        try:
            if apply_rule(graph, rule, without=name).mistyped:
                return
            check_values(graph, case.arrays, 1e-9)
        except (Unequal, ValueError):
            return
    pytest.fail(f"no case needs the condition {name!r} of {rule.name!r}")
