# SPDX-License-Identifier: Apache-2.0
"""The search for the cheapest graphs of one function. Imports no TVM."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from .equality.egraph import WEIGHT_SHARE, EGraph
from .extraction.extract import extract
from .extraction.prices import Price
from .extraction.problem import Problem, as_it_is, problem_of
from .pricing.deciding_kernels import LEAST_GAIN, Timer, time_what_is_wanted, time_what_may_win
from .pricing.measured_prices import FoundPlan, MeasuredPrice
from .report import FunctionReport
from .rules import Rule
from .rules.rule import saturate
from .tree_search.environment import GraphEnvironment, GraphState
from .tree_search.mcts import TreeSearch

REWARD_SECS, ROUND_SECS, FINAL_SECS = 2.0, 3.0, 20.0
"""The time limits in seconds of an extraction: within a tree search, between rounds of timing
kernels, and at the end."""

FINAL_SHARE = 0.25
"""The largest share of the time limit that is reserved for the final extraction."""

LEAST_FINAL_SECS = 0.2
"""The minimum seconds for a final extraction. Without it, the extraction would be greedy when the
growth of the e-graph has used up the time."""


class FunctionSearch:
    """The search for the best graphs of one function.

    - ``graph``: the e-graph of the original function.
    - ``roots``: the e-classes of its results.
    - ``layouts``: whether layouts may change.
    - ``max_nodes``: the e-node limit.
    - ``report``: receives the outcome of the search.
    """

    def __init__(
        self,
        graph: EGraph,
        roots: Sequence[int],
        price: Price,
        rules: Sequence[Rule],
        layouts: bool,
        max_nodes: int,
        report: FunctionReport,
    ) -> None:
        self._start = graph
        self._roots = roots
        self._price = price
        self._rules = rules
        self._layouts = layouts
        self._report = report
        self._saturated = False
        self._grown_size = 0
        # The input graph always fits. A lower limit would leave nothing to search.
        graph.limit = max(max_nodes, graph.size, graph.weight_size // WEIGHT_SHARE + 1)

    def as_it_came(self) -> FoundPlan | None:
        """The plan that computes the original function; None if it cannot be reconstructed."""
        self._start.rebuild()
        first = {number: nodes[0] for number, nodes in self._start.classes()}
        plan = as_it_is(self._problem(self._start, layouts=False), first)
        return None if plan is None else FoundPlan(self._start, plan)

    def best(self, before: FoundPlan, search: str, time_limit: float, seed: int) -> FoundPlan:
        """Find the cheapest plan under fixed prices.

        - ``before``: the original plan, which is returned if no plan is cheaper.
        - ``search``: "auto", "saturate" or "mcts".
        - ``time_limit``: seconds, part of which is reserved for the final extraction. A running
          step is finished.
        - ``seed``: the seed of the tree search.
        """
        start = time.perf_counter()
        end = start + time_limit
        grown = end - min(FINAL_SECS, FINAL_SHARE * time_limit)
        graphs = [self._grown(search, grown - start)]
        if self._needs_tree(search):
            graphs.append(self._tree_search(grown - time.perf_counter(), seed))
        ways = [(graph, self._layouts) for graph in graphs]
        return self._cheapest([before, *self._last_plans(ways, end)])

    def best_timed(
        self,
        before: FoundPlan,
        search: str,
        time_limit: float,
        seed: int,
        price: MeasuredPrice,
        timer: Timer,
        is_due: Callable[[], bool],
        is_late: Callable[[], bool],
        secs_left: Callable[[], float],
    ) -> list[FoundPlan]:
        """Find the cheapest plans, and measure kernel prices on demand.

        - ``before``: the original plan.
        - ``search``: "auto", "saturate" or "mcts".
        - ``time_limit``: seconds for the saturation and the tree search together.
        - ``seed``: the seed of the tree search.
        - ``price``: the price model; the same object that the constructor got.
        - ``is_due``: returns whether to stop timing kernels.
        - ``is_late``: returns whether to stop giving kernels more trials.
        - ``secs_left``: returns the seconds until the deadline. The final extractions get a share
          of them.

        Returns all plans that the search found, the cheapest first, with their latest prices. The
        original plan is among them.
        """
        start = time.perf_counter()
        graphs = [self._grown(search, time_limit)]
        left = time_limit - (time.perf_counter() - start)
        found = [before]

        def settle(graph: EGraph) -> None:
            extracted = partial(self._roughly_extracted, graph)
            found.extend(time_what_is_wanted(price, extracted, timer, is_due, [before]))

        def improve() -> None:
            for graph in [] if is_late() else graphs:
                extracted = partial(self._roughly_extracted, graph)
                found.extend(time_what_may_win(price, extracted, timer, is_late))

        # Likely kernels come first: the time may not suffice for all possible ones.
        with price.expecting():
            settle(graphs[0])
            if self._needs_tree(search) and not is_due():
                # The tree search uses the prices of all kernels that were timed so far.
                graphs.append(self._tree_search(left, seed))
                settle(graphs[1])
            improve()
        for graph in graphs:
            settle(graph)
        improve()
        price.settle()
        kinds = (True, False) if self._layouts else (False,)
        ways = [(graph, layouts) for layouts in kinds for graph in graphs]
        found += self._last_plans(ways, time.perf_counter() + FINAL_SHARE * secs_left())
        ranked = sorted(map(price.repriced, found), key=lambda each: each.plan.cost)
        self._tell(self._cheapest([price.repriced(before), *ranked]))
        return ranked

    def _grown(self, search: str, time_limit: float) -> EGraph:
        grown = self._start.copy()
        if search != "mcts":
            saturation = saturate(grown, self._rules, time_limit=time_limit)
            self._report.rules, self._saturated = saturation.applied, saturation.complete
            self._report.search = "saturated" if self._saturated else "saturated to the limit"
        self._grown_size = grown.size
        return grown

    def _needs_tree(self, search: str) -> bool:
        return not self._saturated and search != "saturate"

    def _tree_search(self, time_limit: float, seed: int) -> EGraph:
        def cost(graph: EGraph) -> float:
            plan = extract(self._problem(graph, self._layouts), REWARD_SECS).plan
            return float("inf") if plan is None else plan.cost

        self._report.search = "tree search"
        environment = GraphEnvironment(self._rules, cost)
        state = GraphState(self._start.copy(), self._start.count)
        search = TreeSearch(environment, seed=seed)
        found = search.run(state, time_limit=max(time_limit, 0.1))
        self._report.rules = {name: found.best.path.count(name) for name in found.best.path}
        return found.best.graph

    def _roughly_extracted(self, graph: EGraph) -> FoundPlan | None:
        plan = extract(self._problem(graph, self._layouts), ROUND_SECS, LEAST_GAIN).plan
        return None if plan is None else FoundPlan(graph, plan)

    def _last_plans(self, ways: Sequence[tuple[EGraph, bool]], end: float) -> list[FoundPlan]:
        """Extract the cheapest plan of each (e-graph, layouts) pair. The pairs share the time."""
        found = []
        for left, (graph, layouts) in zip(range(len(ways), 0, -1), ways):
            share = max((end - time.perf_counter()) / left, LEAST_FINAL_SECS)
            extraction = extract(self._problem(graph, layouts), min(FINAL_SECS, share))
            if extraction.note:
                self._report.note = extraction.note
            if extraction.plan is not None:
                found.append(FoundPlan(graph, extraction.plan))
        return found

    def _cheapest(self, found: Sequence[FoundPlan]) -> FoundPlan:
        best = min(found, key=lambda each: each.plan.cost)
        self._tell(best)
        return best

    def _tell(self, best: FoundPlan) -> None:
        is_start = best.graph is self._start
        self._report.nodes = self._grown_size if is_start else best.graph.size
        self._report.optimal = self._saturated and (is_start or best.plan.optimal)

    def _problem(self, graph: EGraph, layouts: bool) -> Problem:
        return problem_of(graph, list(self._roots), self._price, layouts)
