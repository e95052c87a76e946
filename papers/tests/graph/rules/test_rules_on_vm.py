# SPDX-License-Identifier: Apache-2.0
"""Every rule in float32: by NumPy, and three cases each on the Relax virtual machine."""

from functools import cache
from itertools import islice

import numpy as np
import pytest
from class_values import check_values
from on_vm import Machine, function_of
from rule_cases import cases

from tvm_droplet_papers.graph.equality.egraph import IllegalTerm
from tvm_droplet_papers.graph.equality.language import Term, leaf_type
from tvm_droplet_papers.graph.equality.terms import type_of_term
from tvm_droplet_papers.graph.interpreter import infer
from tvm_droplet_papers.graph.relax.types import RelaxTypes
from tvm_droplet_papers.graph.rules import ALL_RULES
from tvm_droplet_papers.graph.rules.rule import Conditions, apply_rule

# The machine has no kernel of them.
NOT_RUN = {"dropout is nothing"}
ON_MACHINE = 3


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.name)
def test_rule_holds_in_float32(rule):
    for case, graph in islice(cases(rule, infer, "float32"), 30):
        apply_rule(graph, rule)
        check_values(graph, case.arrays, 1e-4)


def whole(graph, part):
    """A term without references to classes: their first e-nodes instead."""
    if isinstance(part, int):
        node = graph.nodes(part)[0]
        return Term(node.operator, tuple(whole(graph, child) for child in node.children))
    return Term(part.operator, tuple(whole(graph, child) for child in part.children))


@cache
def compiled():
    """The machine, and for each rule names of functions that must agree, with their inputs."""
    types = RelaxTypes()
    functions, pairs = {}, {}
    for rule in ALL_RULES:
        if rule.name in NOT_RUN:
            continue
        pairs[rule.name] = []
        for case, graph in islice(cases(rule, types, "float32"), 100):
            equalities = list(rule.matches(graph, Conditions(rule.conditions)))
            legal = [each for each in equalities if is_legal(graph, each.term)]
            if not legal or is_empty(graph):
                continue
            number, term = legal[0]
            parameters = [(leaf, leaf_type(leaf)) for leaf in case.arrays]
            names = [f"f{len(functions)}", f"f{len(functions) + 1}"]
            for name, part in zip(names, (number, term)):
                functions[name] = function_of(whole(graph, part), parameters)
            pairs[rule.name].append((*names, list(case.arrays.values())))
            if len(pairs[rule.name]) == ON_MACHINE:
                break
    return Machine(functions), pairs


def is_legal(graph, term):
    try:
        type_of_term(graph, term)
    except IllegalTerm:
        return False
    return True


def is_empty(graph):
    """True of a tensor without elements, which TVM's kernels refuse."""
    types = [graph.facts(number).type for number, _ in graph.classes()]
    return any(0 in getattr(type_, "shape", ()) for type_ in types)


@pytest.mark.parametrize("name", [rule.name for rule in ALL_RULES if rule.name not in NOT_RUN])
def test_rule_holds_on_the_machine(name):
    machine, pairs = compiled()
    assert len(pairs[name]) == ON_MACHINE
    for before, after, arrays in pairs[name]:
        expected, actual = machine.run(before, arrays), machine.run(after, arrays)
        assert expected.shape == actual.shape
        largest = np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * largest)
