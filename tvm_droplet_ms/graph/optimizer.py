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
"""One call: a module in, an equal module of a lower price out."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst

from ..model.bindings import array_of
from ..tuning.roofline import measure_machine
from .egraph import WEIGHT_SHARE, EGraph
from .environment import GraphEnvironment, GraphState
from .exporter import export_function
from .extract import extract
from .greedy import as_it_is
from .importer import Imported, NotImported, import_function
from .language import Node
from .mcts import TreeSearch
from .prices import Price, RooflinePrice
from .problem import Conversion, Plan, problem_of
from .relax_types import RelaxTypes
from .report import FunctionReport
from .rules import ALL_RULES, Rule
from .saturate import saturate

MAX_NODES = 2000
"""The limit of an e-graph, as in the paper."""

REWARD_SECS, FINAL_SECS = 2.0, 20.0
"""How long one extraction may take, within a tree search and at the end."""


@dataclass
class Optimized:
    """What :func:`optimize` returns.

    Attributes
    ----------
    mod : IRModule
        The module.
    reports : list[FunctionReport]
        One for each Relax function.
    """

    mod: Any
    reports: list[FunctionReport] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(map(str, self.reports))


def optimize(
    mod: Any,
    target: Any,
    *,
    price: Price | None = None,
    rules: Sequence[Rule] = ALL_RULES,
    layouts: bool = True,
    max_nodes: int = MAX_NODES,
    search: str = "auto",
    time_budget_s: float = 60.0,
    seed: int = 0,
) -> Optimized:
    """Search for the cheapest graph that is equal to a module's. In work: prices are estimates.

    Parameters
    ----------
    mod : IRModule
        The module. Functions of symbolic shapes, impure calls or control flow are left alone.
    target : Target or str
        A CPU.
    price : Price or None
        Prices kernels. None: rooflines of the machine that this runs on.
    rules : Sequence[Rule]
        The rules. Without rules, and with `layouts` off, the module that comes out is structurally
        equal.
    layouts : bool
        Whether layouts may change.
    max_nodes : int
        The limit of an e-graph.
    search : str
        "saturate": only saturation to the limit. "mcts": only tree search. "auto": a tree search
        where the saturated e-graph does not fit the limit.
    time_budget_s : float
        Seconds for each function; what is under way is finished.
    seed : int
        The seed of the tree search.

    Returns
    -------
    optimized : Optimized
        The module, and what was done.

    Raises
    ------
    ValueError
        If an option is out of its range.
    """
    if search not in ("auto", "saturate", "mcts"):
        raise ValueError(f"search is {search!r}, expected 'auto', 'saturate' or 'mcts'")
    if max_nodes < 1:
        raise ValueError(f"max_nodes is {max_nodes}, expected at least 1")
    if time_budget_s <= 0:
        raise ValueError(f"time_budget_s is {time_budget_s}, expected a positive number")
    kind = tvm.target.Target(target).kind.name
    if kind != "llvm":
        raise ValueError(f"the target is of the kind {kind!r}, expected 'llvm': a CPU")
    price = price or RooflinePrice(measure_machine())
    prepare = tvm.transform.Sequential(
        [relax.transform.CanonicalizeBindings(), relax.transform.ConvertToDataflow()]
    )
    prepared = prepare(mod)
    types = RelaxTypes()
    result = Optimized(mod.clone())
    for name, func in prepared.functions_items():
        if not isinstance(func, relax.Function):
            continue
        report = FunctionReport(name.name_hint)
        result.reports.append(report)
        start = time.perf_counter()
        try:
            imported = import_function(func, types)
        except NotImported as error:
            report.note = str(error)
            continue
        run = _Search(imported, price, tuple(rules), layouts, max_nodes, report)
        plan = run.run(search, time_budget_s, seed)
        if plan is not None:
            new = export_function(imported, plan, fold=bool(rules))
            result.mod.update_func(name, new)
            report.weight_bytes_before = weight_bytes(func)
            report.weight_bytes_after = weight_bytes(new)
        report.search_secs = time.perf_counter() - start
    return result


class _Search:
    """The search for the best graph of one function."""

    def __init__(
        self,
        imported: Imported,
        price: Price,
        rules: tuple[Rule, ...],
        layouts: bool,
        max_nodes: int,
        report: FunctionReport,
    ) -> None:
        self.imported = imported
        self.price = price
        self.rules = rules
        self.layouts = layouts
        self.report = report
        # What came in always fits: a limit below it would leave nothing to search.
        graph = imported.graph
        graph.limit = max(max_nodes, graph.size, graph.weight_size // WEIGHT_SHARE + 1)

    def run(self, search: str, time_budget_s: float, seed: int) -> Plan | None:
        end = time.perf_counter() + time_budget_s
        start = self.imported.graph
        start.rebuild()
        first: dict[int, Node] = {number: nodes[0] for number, nodes in start.classes()}
        before = as_it_is(self._problem(start, layouts=False), dict(first))
        if before is None:
            self.report.note = "the graph that came in cannot be read back"
            return None
        self.report.before_secs = before.cost
        grown, saturated = start.copy(), False
        if search != "mcts":
            saturation = saturate(grown, self.rules, time_limit=end - time.perf_counter())
            self.report.rules, saturated = saturation.applied, saturation.complete
            self.report.search = "saturated" if saturated else "saturated to the limit"
        candidates = [grown]
        if not saturated and search != "saturate":
            self.report.search = "tree search"
            candidates.append(self._tree_search(start, end, seed))
        return self._best(candidates, before, saturated)

    def _best(self, graphs: list[EGraph], before: Plan, saturated: bool) -> Plan:
        best, self.report.nodes = before, graphs[0].size
        found_in = self.imported.graph
        for graph in graphs:
            extraction = extract(self._problem(graph, self.layouts), FINAL_SECS)
            if extraction.note:
                self.report.note = extraction.note
            if extraction.plan is not None and extraction.plan.cost < best.cost:
                best, found_in, self.report.nodes = extraction.plan, graph, graph.size
                self.report.optimal = saturated and best.optimal
        if best is before:
            self.report.optimal = saturated
        self.imported.graph = found_in
        self.report.after_secs = best.cost
        steps = best.steps.values()
        self.report.conversions = sum(isinstance(step, Conversion) for step in steps)
        return best

    def _problem(self, graph: EGraph, layouts: bool) -> Any:
        return problem_of(graph, self.imported.roots, self.price, layouts)

    def _tree_search(self, start: EGraph, end: float, seed: int) -> EGraph:
        def cost(graph: EGraph) -> float:
            plan = extract(self._problem(graph, self.layouts), REWARD_SECS).plan
            return float("inf") if plan is None else plan.cost

        environment = GraphEnvironment(self.rules, cost)
        state = GraphState(start.copy(), start.count)
        search = TreeSearch(environment, seed=seed)
        found = search.run(state, time_limit=max(end - time.perf_counter(), 0.1))
        self.report.rules = {name: found.best.path.count(name) for name in found.best.path}
        return found.best.graph


def weight_bytes(func: relax.Function) -> int:
    """The bytes of the constants of a function, each once."""
    sizes: dict[Any, int] = {}

    def visit(expr: Any) -> None:
        if isinstance(expr, GenericConst):
            array = array_of(expr)
            sizes[expr] = 0 if array is None else array.nbytes

    relax.analysis.post_order_visit(func, visit)
    return sum(sizes.values())
