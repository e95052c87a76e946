# SPDX-License-Identifier: Apache-2.0
"""The search of one function with measured prices, and the comparison with the input."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm_ffi import structural_equal

from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target
from tvm_droplet_ms.frontends.imported import ImportedModel, check_inputs
from tvm_droplet_ms.measure import TaskFailed
from tvm_droplet_ms.model.bindings import operator_name
from tvm_droplet_ms.session.errors import ModelError, last_line
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.check.output_check import EXACT_TOLERANCE, make_check

from .bench import Bench
from .extraction.problem import Conversion
from .function_search import FunctionSearch
from .graph_timing import TIMED_SECS
from .pricing.deciding_kernels import LEAST_GAIN
from .pricing.kernels import Kernel
from .pricing.measured_prices import FoundPlan, MeasuredPrice
from .relax.exporter import export_function
from .relax.importer import Imported
from .report import FunctionReport, GraphTimes, Measured
from .verification import INPUT, verify, why_incomparable

SEARCH_SHARE, CLOSER_SHARE, PRICING_SHARE, TUNING_SHARE = 0.2, 0.4, 0.55, 0.7
"""Shares of the remaining time, in this order: for the search without kernel timing; until kernels
get only their first trials, provided that some kernels got more; for the search with kernel timing;
and, of the time left after the search, for tuning whole graphs before they are compiled."""

MOST_SEARCH_SECS = 45.0
"""The maximum seconds of the search without kernel timing, whatever the total time budget."""

LEAST_PROMISE = LEAST_GAIN / 2
"""The share of the input's estimate that a graph must save to be run. A graph is taken only if it
measurably saves twice as much. Some graphs with estimated savings of 1% were 4% faster; no graph
with estimated savings of 0.1% was reliably faster."""

MOST_GRAPHS = 3
"""The maximum number of graphs to run besides the input."""

LEVELS = (4, 8, 16, 24, 28, 32)
"""The trial counts for tuning the kernels of whole graphs. All kernels reach the first level.
Kernels that only some graphs have continue to the next levels while time is left. The first level
is small because a fused kernel starts from the schedules of its unfused anchor, and because a graph
of a hundred kernels must fit the time. At each level, a kernel starts with the schedules found for
kernels with the same loops. The last level adds few other candidates, so that a lucky find in one
graph helps all graphs."""

LISTED = 3
"""The maximum number of kernels that a report lists as limits of the gain."""

LEAST_VARIANCE = 0.5
"""The minimum of a random batch-norm variance or scale: the norm divides by the variance's root."""


class MeasuredSearch:
    """The search of ``main`` with measured prices.

    - ``imported``: the module's function ``main``.
    - ``price``: the price model, which learns from measured times.
    - ``bench``: times kernels and graphs.
    - ``stop``: when to end. A running step is finished.
    - ``seed``: the seed of all random choices.
    - ``report``: receives the outcome.
    """

    def __init__(
        self,
        mod: IRModule,
        imported: Imported,
        price: MeasuredPrice,
        bench: Bench,
        target: Target,
        stop: StopRequest,
        seed: int,
        report: FunctionReport,
    ) -> None:
        self._mod = mod
        self._imported = imported
        self._price = price
        self._bench = bench
        self._target = target
        self._stop = stop
        self._seed = seed
        self._report = report
        self._measured = report.measured = Measured()

    def run(self, search: FunctionSearch, kind: str, fold: bool) -> relax.Function | None:
        """Search for faster graphs and compare them with the input.

        ``kind``: "auto", "saturate" or "mcts". ``fold``: whether to evaluate subgraphs that depend
        only on constants. Returns None if the input is kept.
        """
        try:
            bound = self._with_weights(self._mod)
            model = ImportedModel(bound, check_inputs(bound))
        except ModelError as error:
            self._leave(f"it cannot be run to compare graphs: {error}")
            return None
        before = search.as_it_came()
        if before is None:
            self._leave("the graph that came in cannot be read back")
            return None
        found = self._found(search, kind, before)
        before = self._price.repriced(before)
        self._report.before_secs = before.plan.cost
        self._report.after_secs = found[0].plan.cost
        self._measured.untimed = len(self._price.unknown([found[0]]))
        steps = found[0].plan.steps.values()
        self._report.conversions = sum(isinstance(step, Conversion) for step in steps)
        self._measured.limits = self._price.limits(before, found[0], LISTED)
        functions = self._functions(found, before, fold)
        self._count()
        if not functions:
            self._measured.verdict = f"no graph saves {LEAST_PROMISE:.1%} by its estimate"
            return None
        start = time.monotonic()
        chosen = None if self._stop.is_asked else self._verified(model, before, functions)
        self._measured.verifying_secs = time.monotonic() - start
        self._count()
        if self._stop.is_asked and chosen is None:
            self._measured.verdict = "the search was interrupted"
        return chosen

    def _count(self) -> None:
        self._measured.trials = self._bench.trials
        self._measured.secs_of = dict(self._bench.secs_of)

    def _leave(self, note: str) -> None:
        self._report.search, self._report.note, self._report.measured = "none", note, None

    def _with_weights(self, mod: IRModule) -> IRModule:
        """Bind random values to the parameters that are weights."""
        params = mod["main"].params
        first = int((mod["main"].attrs or {}).get("num_input", len(params)))
        generator = np.random.default_rng(self._seed)
        # Read the positive parameters from the input module, so that all graphs get equal values.
        positive = _positive(self._mod["main"])
        values = {}
        for number, param in enumerate(params[first:], first):
            value = generator.standard_normal([int(extent) for extent in param.ty.shape])
            value = np.abs(value) + LEAST_VARIANCE if number in positive else value
            values[param.name] = value.astype(str(param.ty.dtype))
        return relax.transform.BindParams("main", values)(mod) if values else mod

    def _found(self, search: FunctionSearch, kind: str, before: FoundPlan) -> list[FoundPlan]:
        start, left = time.monotonic(), self._stop.left
        pricing = self._stop.earlier((1 - PRICING_SHARE) * left)
        closer = self._stop.earlier((1 - CLOSER_SHARE) * left)

        def timed(kernels: Sequence[Kernel], trials: int) -> Mapping[Kernel, float | None]:
            began = time.monotonic()
            secs = self._bench.time(kernels, pricing, trials)
            self._measured.timing_secs += time.monotonic() - began
            return secs

        def is_late() -> bool:
            # The first trials of a large graph take long, and one unlucky kernel may decide the
            # result. So extra trials stay possible until some kernels got them.
            return pricing.is_due or (closer.is_due and bool(self._price.firm))

        limit = min(SEARCH_SHARE * left, MOST_SEARCH_SECS)
        found = search.best_timed(
            before,
            kind,
            limit,
            self._seed,
            self._price,
            timed,
            lambda: pricing.is_due,
            is_late,
            lambda: self._stop.left,
        )
        known = self._price.timed
        self._measured.kernels = len(known)
        self._measured.unpriced = sum(secs is None for secs in known.values())
        self._measured.closer = len(self._price.firm)
        self._measured.pricing_secs = time.monotonic() - start
        return found

    def _functions(
        self, found: Sequence[FoundPlan], before: FoundPlan, fold: bool
    ) -> list[tuple[relax.Function, float]]:
        """The cheapest distinct functions, with their estimated seconds."""
        functions: list[tuple[relax.Function, float]] = []
        start = self._imported.graph
        for graph, plan in found:
            if plan.cost > (1 - LEAST_PROMISE) * before.plan.cost or len(functions) == MOST_GRAPHS:
                break
            self._imported.graph = graph
            function = export_function(self._imported, plan, fold)
            if not any(structural_equal(function, other) for other, _ in functions):
                functions.append((function, plan.cost))
        self._imported.graph = start
        return functions

    def _verified(
        self,
        model: ImportedModel,
        before: FoundPlan,
        functions: Sequence[tuple[relax.Function, float]],
    ) -> relax.Function | None:
        names = {f"graph {i}": function for i, (function, _) in enumerate(functions, 1)}
        estimates = dict(zip(names, (cost for _, cost in functions), strict=True))
        estimates[INPUT] = before.plan.cost
        mods = {INPUT: model.mod} | {n: self._whole(function) for n, function in names.items()}
        check = self._guarded(
            INPUT, lambda: make_check(model, self._target, EXACT_TOLERANCE, self._seed)
        )
        if check is None:
            self._measured.verdict = "the input cannot be compiled"
            return None
        if reason := why_incomparable(check):
            self._measured.verdict = reason
            return None
        graphs = self._tuned(mods)
        if self._stop.is_asked:
            return None
        compiled: dict[str, Any] = {}
        for name, graph in graphs.items():
            built = self._guarded(name, partial(self._bench.compile, graph, check))
            if built is not None:
                compiled[name] = built
        if INPUT not in compiled or len(compiled) == 1:
            self._measured.verdict = "there is nothing to compare it with"
            return None
        try:
            verdict = verify(compiled, check, self._bench.time_graphs)
        except (TaskFailed, OSError) as error:
            self._measured.verdict = f"the graphs could not be timed: {last_line(error)}"
            return None
        self._measured.taken, self._measured.verdict = verdict.winner, verdict.reason
        self._measured.graphs = [
            GraphTimes(
                name,
                estimates[name],
                self._bench.kernel_secs(graphs[name]),
                verdict.median_secs(name),
                verdict.deviations[name],
                verdict.deviations[name] > check.tolerance,
            )
            for name in compiled
        ]
        return names.get(verdict.winner)

    def _whole(self, function: relax.Function) -> IRModule:
        mod = self._mod.clone()
        main = function.with_attr("global_symbol", "main")
        mod.update_func(mod.get_global_var("main"), main)
        return self._with_weights(mod)

    def _tuned(self, mods: Mapping[str, IRModule]) -> dict[str, Any]:
        """Tune the graphs with equal trials. Leave out graphs for which no time is left."""
        tuning = self._stop.earlier(max((1 - TUNING_SHARE) * self._stop.left, TIMED_SECS))
        graphs = dict(zip(mods, self._bench.graphs(list(mods.values()), tuning), strict=True))
        common: set[int] = set()
        for turn, level in enumerate(LEVELS):
            # A kernel tries the schedules found in earlier graphs. The order alternates so that no
            # graph is always the last.
            order = list(graphs.values())[:: -1 if turn % 2 else 1]
            complete = [self._bench.tune(graph, level, tuning, common) for graph in order]
            if not all(complete):
                # A graph without trials cannot win and need not be compiled.
                kept = max(2, sum(complete)) if level == LEVELS[0] else len(graphs)
                return dict(list(graphs.items())[:kept])
            common = set.intersection(*(set(graph.workloads) for graph in graphs.values()))
        return graphs

    def _guarded(self, name: str, make: Callable[[], Any]) -> Any:
        # TVM raises many error types for graphs that it cannot compile. Keep the other graphs.
        try:
            return make()
        except Exception as error:
            self._report.notes.append(f"{name} was left out, TVM raised: {last_line(error)}")
            return None


def _positive(func: relax.Function) -> set[int]:
    """The indices of the parameters that are the scale or the variance of a batch norm."""
    found: set[Any] = set()

    def visit(expr: Any) -> None:
        if operator_name(expr) == "relax.nn.batch_norm":
            found.update((expr.args[1], expr.args[4]))

    relax.analysis.post_order_visit(func, visit)
    return {number for number, param in enumerate(func.params) if param in found}
