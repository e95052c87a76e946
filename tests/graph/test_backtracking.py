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
"""The search among single graphs, with which the tree search is compared."""

import numpy as np
import pytest
from small_models import attention, network, steps

from tvm_droplet_ms.bench.graph_backtracking import backtrack, single, substituted, substitutions
from tvm_droplet_ms.bench.graph_search_run import MACHINE
from tvm_droplet_ms.graph import ALL_RULES, RooflinePrice
from tvm_droplet_ms.graph.equality.saturate import saturate
from tvm_droplet_ms.graph.extraction.extract import extract
from tvm_droplet_ms.graph.extraction.problem import problem_of
from tvm_droplet_ms.graph.interpreter import evaluate
from tvm_droplet_ms.graph.optimizer import prepared_for_import
from tvm_droplet_ms.graph.relax.importer import import_function
from tvm_droplet_ms.graph.relax.types import RelaxTypes
from tvm_droplet_ms.model.bindings import array_of


def start_of(mod):
    types = RelaxTypes()
    imported = import_function(prepared_for_import(mod)["main"], types)
    imported.graph.rebuild()
    return imported, single(imported.graph, imported.roots, types, {}), types


def values_of(found, imported):
    """What a single graph computes."""
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal([int(n) for n in v.ty.shape]) for v in imported.inputs]
    known = {}

    def visit(number):
        if number not in known:
            (node,) = found.graph.nodes(number)
            name = node.operator.name
            if name == "input":
                known[number] = inputs[node.operator.get("index")]
            elif name == "constant":
                known[number] = array_of(imported.constants[node.operator.get("index")])
            else:
                known[number] = evaluate(node.operator, [visit(child) for child in node.children])
        return known[number]

    return [visit(root) for root in found.roots]


@pytest.mark.parametrize("model", [attention, network, steps])
def test_what_a_substitution_makes_computes_the_same(model):
    imported, start, types = start_of(model())
    expected = values_of(start, imported)
    made = [substituted(start, group, types) for group in substitutions(start.graph, ALL_RULES)]
    made = [graph for graph in made if graph is not None and graph.key != start.key]
    assert len({graph.key for graph in made}) > 3
    for graph in made:
        for value, other in zip(values_of(graph, imported), expected, strict=True):
            np.testing.assert_allclose(value, other, atol=1e-5 * np.abs(other).max())


def cost(graph, roots):
    return extract(problem_of(graph, roots, RooflinePrice(MACHINE), True)).plan.cost


@pytest.mark.parametrize("model", [network, steps])
def test_it_finds_what_saturation_does_where_no_step_costs_more(model):
    imported, start, types = start_of(model())
    found = backtrack(start, ALL_RULES, cost, types, 400)
    imported.graph.limit = 2000
    assert saturate(imported.graph, ALL_RULES).complete
    best = cost(imported.graph, imported.roots)
    assert found.cost < cost(start.graph, start.roots)
    assert best * (1 - 1e-6) <= found.cost
    assert found.priced <= 400


def test_the_number_of_graphs_is_kept():
    _, start, types = start_of(network())
    found = backtrack(start, ALL_RULES, cost, types, 5)
    assert (found.priced, found.complete) == (5, False)
