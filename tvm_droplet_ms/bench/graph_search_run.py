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
"""Ways to search one model's graph by prices that do not change."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tvm.ir import IRModule

from ..graph import ALL_RULES, RooflinePrice
from ..graph.equality.egraph import WEIGHT_SHARE, EGraph
from ..graph.equality.saturate import saturate
from ..graph.extraction.extract import extract
from ..graph.extraction.greedy import dag_greedy, tree_greedy
from ..graph.extraction.problem import Plan, Problem, problem_of
from ..graph.optimizer import prepared_for_import
from ..graph.relax.importer import import_function
from ..graph.relax.types import RelaxTypes
from ..graph.rules.rule import apply_rule
from ..graph.tree_search.environment import GraphEnvironment, GraphState
from ..graph.tree_search.mcts import TreeSearch
from ..graph.tree_search.settings import PAPER, SWITCHES, Settings
from ..model.prepare import prepare_graph
from ..tuning.roofline import MachineRates
from .graph_backtracking import backtrack, single

MACHINE = MachineRates(1e11, (2**17, 2**23), (1e11, 1e10))
"""A machine of 100 Gflop/s, and 100 GB/s in its caches: the same prices on any computer."""

GRAPHS_A_STATE = 20
"""Single graphs that are priced where an e-graph would be: that takes about as long."""

EXTRACTION_SECS = 60.0
"""The most seconds of an extraction."""


class Searched:
    """A model whose graph is searched.

    Parameters
    ----------
    mod : IRModule
        The model as imported.
    """

    def __init__(self, mod: IRModule) -> None:
        prepared = prepared_for_import(prepare_graph()(mod))
        self._types = RelaxTypes()
        imported = import_function(prepared["main"], self._types)
        imported.graph.rebuild()
        self._start, self._roots = imported.graph, imported.roots
        self._price = RooflinePrice(MACHINE)
        self._input: float | None = None

    def run(self, method: str, limit: int, seed: int, states: int) -> dict[str, Any]:
        """Search.

        Parameters
        ----------
        method : str
            One of ``METHODS``.
        limit : int
            The most e-nodes. The graph as it came always fits.
        seed : int
            The seed of what is random.
        states : int
            The states that are priced by what searches.

        Returns
        -------
        result : dict[str, Any]
            ``input`` and ``cost``, seconds by the prices; ``nodes``; ``complete``, whether no rule
            adds anything; ``secs``, of the processor; and what the method adds.
        """
        graph = self._start.copy()
        graph.limit = max(limit, graph.size, graph.weight_size // WEIGHT_SHARE + 1)
        if self._input is None:
            self._input = self._cost(graph, layouts=False)
        start = time.process_time()
        found = METHODS[method].search(self, graph, seed, states)
        secs = time.process_time() - start
        return {"input": self._input, **found, "secs": secs}

    def with_backtracking(self, graph: EGraph, _seed: int, states: int) -> dict[str, Any]:
        """Single graphs with backtracking. No e-graph, and no limit."""

        def cost(graph: EGraph, roots: Sequence[int]) -> float:
            plan = extract(problem_of(graph, roots, self._price, True), EXTRACTION_SECS).plan
            return float("inf") if plan is None else plan.cost

        start = single(graph, self._roots, self._types, {})
        assert start is not None
        found = backtrack(start, ALL_RULES, cost, self._types, GRAPHS_A_STATE * states)
        done = {"states_priced": found.priced}
        return {"cost": found.cost, "nodes": found.nodes, "complete": found.complete, **done}

    def _problem(self, graph: EGraph, layouts: bool = True) -> Problem:
        return problem_of(graph, self._roots, self._price, layouts)

    def _cost(self, graph: EGraph, layouts: bool = True) -> float:
        plan = extract(self._problem(graph, layouts), EXTRACTION_SECS).plan
        return float("inf") if plan is None else plan.cost

    def saturated(self, graph: EGraph, _seed: int, _states: int) -> dict[str, Any]:
        """All rules, round by round, until the limit; with the extraction in detail."""
        start = time.process_time()
        saturation = saturate(graph, ALL_RULES, time_limit=EXTRACTION_SECS)
        saturating = time.process_time() - start
        problem = self._problem(graph)
        start = time.process_time()
        extraction = extract(problem, EXTRACTION_SECS)
        extracting = time.process_time() - start
        tree, dag = tree_greedy(problem), dag_greedy(problem)
        assert extraction.plan is not None and tree is not None and dag is not None
        return {
            "cost": extraction.plan.cost,
            "bound": extraction.bound,
            "tree": tree.cost,
            "dag": dag.cost,
            "nodes": graph.size,
            "complete": saturation.complete,
            "saturating_secs": saturating,
            "extracting_secs": extracting,
        }

    def at_random(self, graph: EGraph, seed: int, states: int) -> dict[str, Any]:
        """Rules in random orders until none changes the e-graph or it is full; the best order."""
        generator = np.random.default_rng(seed)
        best, nodes = float("inf"), 0
        for _ in range(states):
            grown = graph.copy()
            complete = _apply_at_random(grown, generator)
            cost = self._cost(grown)
            if cost < best:
                best, nodes = cost, grown.size
            if complete:
                # Where everything fits, every order ends with the same e-graph.
                return {"cost": best, "nodes": nodes, "complete": True}
        return {"cost": best, "nodes": nodes, "complete": False}

    def by_tree(
        self,
        graph: EGraph,
        seed: int,
        states: int,
        settings: Settings = Settings(),
        greedy: Callable[[Problem], Plan | None] | None = None,
    ) -> dict[str, Any]:
        """The tree search, with other settings or with a greedy extraction in all its rewards."""

        def greedy_cost(graph: EGraph) -> float:
            assert greedy is not None
            plan = greedy(self._problem(graph))
            return float("inf") if plan is None else plan.cost

        cost = self._cost if greedy is None else greedy_cost
        search = TreeSearch(GraphEnvironment(ALL_RULES, cost), settings, seed)
        found = search.run(GraphState(graph, graph.count), max_costs=states)
        done = {"states_priced": found.costs, "simulations": found.simulations}
        return {"cost": found.cost, "nodes": found.best.graph.size, "complete": False, **done}


def _apply_at_random(graph: EGraph, generator: np.random.Generator) -> bool:
    """Apply random rules; whether it ended because none changes anything."""
    waiting = list(ALL_RULES)
    while waiting:
        index = int(generator.integers(len(waiting)))
        step = apply_rule(graph, waiting[index])
        if step.full:
            return False
        if step.changed:
            waiting = list(ALL_RULES)
        else:
            waiting.pop(index)
    return True


class Method(NamedTuple):
    """A way to search.

    Attributes
    ----------
    search : Callable[[Searched, EGraph, int, int], dict[str, Any]]
        Searches from an e-graph with a limit; takes the seed and the number of states, too.
    is_random : bool
        Whether the seed matters.
    """

    search: Callable[[Searched, EGraph, int, int], dict[str, Any]]
    is_random: bool = True


MAIN_METHODS: Mapping[str, Method] = {
    "saturation": Method(Searched.saturated, is_random=False),
    "backtracking": Method(Searched.with_backtracking, is_random=False),
    "random": Method(Searched.at_random),
    "tree search": Method(Searched.by_tree),
}
"""The ways to search that are compared."""

METHODS: Mapping[str, Method] = {
    **MAIN_METHODS,
    "tree search as published": Method(partial(Searched.by_tree, settings=PAPER)),
    "tree search, tree greedy": Method(partial(Searched.by_tree, greedy=tree_greedy)),
    "tree search, DAG greedy": Method(partial(Searched.by_tree, greedy=dag_greedy)),
    **{
        f"tree search without {switch}": Method(
            partial(Searched.by_tree, settings=replace(Settings(), **{switch: False}))
        )
        for switch in SWITCHES
    },
}
"""Those, and the tree search with each of its differences from the published one off."""
