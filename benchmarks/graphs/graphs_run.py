# SPDX-License-Identifier: Apache-2.0
"""Searches the graph of one model and compares whole graphs, in a separate process."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tvm_ffi import structural_equal

from tvm import relax
from tvm.ir import GenericConst, IRModule
from tvm_droplet_ms.design_space.native_vectors import register_floats
from tvm_droplet_ms.frontends.imported import ImportedModel, check_inputs
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.session.errors import last_line
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.check.output_check import EXACT_TOLERANCE, OutputCheck, make_check
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_papers.graph import optimize
from tvm_droplet_papers.graph.measured_search import LEVELS
from tvm_droplet_papers.graph.pricing.workbench import Workbench
from tvm_droplet_papers.graph.verification import INPUT, verify

from ..store import Task, environment, serve
from ..zoo.graph_models import MODELS
from .graphs_report import BY_HAND, COMBINED, FOUND, IMPORTED, PREPARED


@relax.expr_functor.mutator
class _Unbind(relax.PyExprMutator):  # type: ignore[misc]
    """Replaces constants by parameters."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.constants: dict[Any, Any] = {}

    def visit_generic_const_(self, op: GenericConst) -> Any:
        """Replace a constant by a parameter; see ``PyExprMutator``."""
        parameter = relax.Var(f"weight_{len(self.constants)}", op.ty)
        self.constants[parameter] = op
        return parameter


def combine_matmuls(mod: IRModule) -> IRModule | None:
    """Merge matmuls of the same input with ``CombineParallelMatmul``; None if nothing is merged.

    The pass does not merge constants, so they temporarily become parameters.
    """
    unbind, main = _Unbind(mod), mod["main"]
    body = unbind.visit_expr(main.body)
    function = relax.Function([*main.params, *unbind.constants], body, main.ret_ty)
    free = IRModule({"main": function.with_attr("global_symbol", "main")})
    combined = relax.transform.CombineParallelMatmul()(free)
    if structural_equal(combined, free):
        return None
    values = {parameter.name: value for parameter, value in unbind.constants.items()}
    return relax.transform.BindParams("main", values)(combined)


MOST_SECS = 24 * 3600.0
"""A time limit in seconds that is never reached, so that all kernels get their trials."""

NOT_COMPARED: dict[str, Any] = {
    "secs": {},
    "deviations": {},
    "kernels": {},
    "trials": 0,
    "comparing_secs": 0.0,
    "notes": ["the input was kept, and there is no other graph to compare it with"],
}
"""The comparison in a result with only one graph."""


def search_and_compare(task: Task) -> dict[str, Any]:
    """Search the graph of a model, and compare the found graph with the others.

    Returns ``search``, the fields of the search's ``FunctionReport``; ``text``, the report as
    printed; ``secs`` of each round and ``deviations``, by the graph's name; ``kernels``, the number
    of distinct kernels of each graph; ``trials`` and ``comparing_secs`` of the comparison;
    ``notes``; ``environment``. If the search found nothing, its values equal the prepared graph's.
    If the search kept the input and there is no other graph, nothing is compared or timed.
    """
    settings = task.settings
    model = MODELS[settings["model"]]
    work_dir = task.out / "work" / f"{settings['model']}-{settings['seed']}"
    # Otherwise this run would continue from the files of a stopped run.
    shutil.rmtree(work_dir, ignore_errors=True)
    imported = model.make()
    target = cpu_target("auto", 1)
    prepare = prepare_graph(lanes=register_floats(target))
    prepared = prepare(imported)
    found = optimize(
        prepared,
        target,
        work_dir=work_dir,
        time_budget_s=60.0 * settings["minutes"],
        seed=settings["seed"],
    )
    print(found, flush=True)
    (report,) = found.reports
    has_found = report.measured is not None and report.measured.taken != INPUT
    graphs = {INPUT: prepared}
    graphs |= {FOUND: found.mod} if has_found else {}
    graphs |= {IMPORTED: imported} if settings["imported"] else {}
    combined = combine_matmuls(imported)
    if combined is not None:
        graphs[COMBINED] = prepare(combined)
    graphs |= {} if model.by_hand is None else {BY_HAND: prepare(model.by_hand())}
    searched: dict[str, Any] = {
        "search": asdict(report),
        "text": str(report),
        "environment": environment(),
    }
    if list(graphs) == [INPUT]:
        return searched | NOT_COMPARED
    started, notes = time.monotonic(), list[str]()
    whole = ImportedModel(imported, check_inputs(imported))
    check = make_check(whole, target, EXACT_TOLERANCE, settings["seed"])
    bench = Workbench(work_dir, target, 1, notes.append, settings["seed"])
    try:
        compiled, kernels = _compiled(bench, graphs, settings["trials"], check, notes)
        if INPUT not in compiled:
            raise RuntimeError(f"the prepared graph could not be compiled: {'; '.join(notes)}")
        verdict = verify(compiled, check, bench.time_graphs)
    finally:
        bench.close()
    return searched | {
        "secs": _named(verdict.secs, has_found),
        "deviations": _named(verdict.deviations, has_found),
        "kernels": _named(kernels, has_found),
        "trials": bench.trials,
        "comparing_secs": time.monotonic() - started,
        "notes": [verdict.reason, *dict.fromkeys(notes)],
    }


def _compiled(
    bench: Workbench, mods: Mapping[str, Any], trials: int, check: OutputCheck, notes: list[str]
) -> tuple[dict[str, CompiledModel], dict[str, int]]:
    """Tune all kernels with equal trials, compile the graphs, and count their distinct kernels."""
    no_end = StopRequest(time.monotonic() + MOST_SECS)
    graphs = dict(zip(mods, bench.graphs(list(mods.values()), no_end), strict=True))
    # Tune level by level and alternate the order of the graphs, so that knowledge from one graph's
    # kernels benefits all graphs equally.
    levels = [*(level for level in LEVELS if level < trials), trials]
    for turn, level in enumerate(levels):
        for graph in list(graphs.values())[:: -1 if turn % 2 else 1]:
            bench.tune(graph, level, no_end, ())
    compiled: dict[str, CompiledModel] = {}
    for name, graph in graphs.items():
        # TVM raises errors of many types. A graph that fails must not lose the others.
        try:
            compiled[name] = bench.compile(graph, check)
        except Exception as error:
            notes.append(f"{name} was left out, TVM raised: {last_line(error)}")
    return compiled, {name: len(graph.workloads) for name, graph in graphs.items()}


def _named(values: Mapping[str, Any], has_found: bool) -> dict[str, Any]:
    """Rename values to the report's names; if nothing was found, the prepared graph stands in."""
    named = {PREPARED if name == INPUT else name: value for name, value in values.items()}
    if not has_found and PREPARED in named:
        named[FOUND] = named[PREPARED]
    return named


if __name__ == "__main__":
    serve(search_and_compare)
