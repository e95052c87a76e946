# SPDX-License-Identifier: Apache-2.0
"""The search of one model's graph, and the comparison of whole graphs, in a process of its own."""

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
from tvm_droplet_ms.graph import optimize
from tvm_droplet_ms.graph.measured_search import LEVELS
from tvm_droplet_ms.graph.pricing.workbench import Workbench
from tvm_droplet_ms.graph.verification import INPUT, verify
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.check.output_check import EXACT_TOLERANCE, OutputCheck, make_check
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.picks.picks import last_line

from ..store import Task, environment, serve
from ..zoo.graph_models import MODELS
from .graphs_report import BY_HAND, COMBINED, FOUND, IMPORTED, PREPARED


@relax.expr_functor.mutator
class _Unbind(relax.PyExprMutator):  # type: ignore[misc]
    """Puts parameters in the place of constants."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.constants: dict[Any, Any] = {}

    def visit_generic_const_(self, op: GenericConst) -> Any:
        """Put a parameter in the place of a constant; see ``PyExprMutator``."""
        parameter = relax.Var(f"weight_{len(self.constants)}", op.ty)
        self.constants[parameter] = op
        return parameter


def combine_matmuls(mod: IRModule) -> IRModule | None:
    """Merge the matmuls of one input by ``CombineParallelMatmul``; None where nothing is to merge.

    That pass leaves constants alone, so that they are parameters meanwhile.
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
"""A clock that does not end the comparison: all kernels are to get their trials."""

NOT_COMPARED: dict[str, Any] = {
    "secs": {},
    "deviations": {},
    "kernels": {},
    "trials": 0,
    "comparing_secs": 0.0,
    "notes": ["the input was kept, and there is no other graph to compare it with"],
}
"""The comparison in a result where there is but one graph."""


def search_and_compare(task: Task) -> dict[str, Any]:
    """Search the graph of a model, and compare what is found.

    Returns ``search``, the report of the search as ``FunctionReport`` has it, and ``text``, as it
    is printed; ``secs`` of each round and ``deviations`` by the graph's name, where a search that
    found nothing has those of the prepared graph; ``kernels``, how many different ones each has;
    ``trials`` and ``comparing_secs`` of the comparison; ``notes``; ``environment``. Where the input
    was kept and there is no other graph, nothing is compared or timed.
    """
    settings = task.settings
    model = MODELS[settings["model"]]
    work_dir = task.out / "work" / f"{settings['model']}-{settings['seed']}"
    # Files of a stopped run would make this run a continuation.
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
    """The graphs with kernels of equal trials, and how many different kernels each has."""
    no_end = StopRequest(time.monotonic() + MOST_SECS)
    graphs = dict(zip(mods, bench.graphs(list(mods.values()), no_end), strict=True))
    # Level by level, and in turns from both ends, so that what is learned of one graph's kernels
    # serves the others' alike.
    levels = [*(level for level in LEVELS if level < trials), trials]
    for turn, level in enumerate(levels):
        for graph in list(graphs.values())[:: -1 if turn % 2 else 1]:
            bench.tune(graph, level, no_end, ())
    compiled: dict[str, CompiledModel] = {}
    for name, graph in graphs.items():
        # TVM's errors are of many types. One graph that fails must not lose the others.
        try:
            compiled[name] = bench.compile(graph, check)
        except Exception as error:
            notes.append(f"{name} was left out, TVM raised: {last_line(error)}")
    return compiled, {name: len(graph.workloads) for name, graph in graphs.items()}


def _named(values: Mapping[str, Any], has_found: bool) -> dict[str, Any]:
    """The values by the names of the report; where nothing was found, it is the prepared graph."""
    named = {PREPARED if name == INPUT else name: value for name, value in values.items()}
    if not has_found and PREPARED in named:
        named[FOUND] = named[PREPARED]
    return named


if __name__ == "__main__":
    serve(search_and_compare)
