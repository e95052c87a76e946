# SPDX-License-Identifier: Apache-2.0
"""E-graphs as the environment of a tree search."""

import numpy as np
import pytest

from benchmarks.zoo.graph_models.repvgg import repvgg
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_papers.graph import ALL_RULES, RooflinePrice
from tvm_droplet_papers.graph.extraction.extract import extract
from tvm_droplet_papers.graph.extraction.problem import problem_of
from tvm_droplet_papers.graph.optimizer import prepared_for_import
from tvm_droplet_papers.graph.relax.importer import import_function
from tvm_droplet_papers.graph.relax.types import RelaxTypes
from tvm_droplet_papers.graph.tree_search.environment import (
    GraphEnvironment,
    GraphState,
    fingerprint,
)

NAMES = [rule.name for rule in ALL_RULES]
MACHINE = MachineRates(1e11, (2**17, 2**23), (1e11, 1e10))


@pytest.fixture(scope="module")
def blocks():
    """Six blocks of RepVGG, whose branches become one kernel by several rules each."""
    mod = prepared_for_import(prepare_graph()(repvgg(16, ((1, 8), (5, 8)), 4)))
    imported = import_function(mod["main"], RelaxTypes())
    imported.graph.rebuild()

    def cost(graph):
        problem = problem_of(graph, imported.roots, RooflinePrice(MACHINE), False)
        return extract(problem, gap=0.0).plan.cost

    return imported.graph, GraphEnvironment(ALL_RULES, cost), cost


def state_of(graph, limit):
    start = graph.copy()
    start.limit = limit
    return GraphState(start, start.count)


def test_all_rules_of_some_parts_gain_where_some_rules_of_all_parts_do_not(blocks):
    graph, environment, cost = blocks
    start = state_of(graph, graph.size + 40)
    at_once = environment.filled(start, NAMES)
    found = [environment.filled(start, NAMES, 3, np.random.default_rng(seed)) for seed in range(4)]
    assert all(state.graph.size <= start.graph.limit for state in [at_once, *found])
    assert cost(at_once.graph) > 0.995 * cost(graph)
    assert all(environment.cost(state) < 0.99 * cost(graph) for state in found)


def test_where_all_fits_parts_find_what_saturation_finds(blocks):
    graph, environment, cost = blocks
    start = state_of(graph, 2000)
    state = start
    while (after := environment.filled(state, NAMES)).key != state.key:
        state = after
    by_parts = environment.filled(start, NAMES, 3, np.random.default_rng(0))
    assert cost(state.graph) < 0.95 * cost(graph)
    assert cost(by_parts.graph) == pytest.approx(cost(state.graph))


def test_a_step_leaves_the_state_before_it_as_it_is(blocks):
    graph, environment, _ = blocks
    start = state_of(graph, 2000)
    key, size = fingerprint(start.graph, start.origin), start.graph.size
    after = [environment.step(start, name) for name in NAMES]
    after += [environment.filled(start, NAMES, 2, np.random.default_rng(0))]
    assert sum(state is not None and state.graph.size > size for state in after) > 1
    assert (fingerprint(start.graph, start.origin), start.graph.size) == (key, size)
    assert all(state.path for state in after if state is not None)


def test_a_step_that_does_not_fit_is_undone(blocks):
    graph, environment, _ = blocks
    start = state_of(graph, graph.size)
    assert all(environment.step(start, name) is None for name in NAMES)
    assert environment.filled(start, NAMES, 2, np.random.default_rng(0)).graph.size == graph.size
