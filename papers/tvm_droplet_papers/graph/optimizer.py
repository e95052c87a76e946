# SPDX-License-Identifier: Apache-2.0
"""The entry point ``optimize``: replaces a module with a faster equivalent one."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target
from tvm_droplet_ms.compat.flags import check_flag
from tvm_droplet_ms.frontends.relax import with_main
from tvm_droplet_ms.host import parsed_target
from tvm_droplet_ms.model.bindings import weight_bytes
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.one_writer import SecondWriterError, only_writer
from tvm_droplet_ms.session.roofline import measure_machine
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.session.threads import set_own_threads, worker_threads
from tvm_droplet_ms.session.work_dir import begun_target, open_work_dir

from .bench import Bench
from .extraction.prices import Price, RooflinePrice
from .extraction.problem import Conversion
from .function_search import FunctionSearch
from .measured_search import MeasuredSearch
from .pricing.measured_prices import MeasuredPrice
from .relax.exporter import export_function
from .relax.importer import Imported, NotImported, import_function
from .relax.types import RelaxTypes
from .report import FunctionReport
from .rules import ALL_RULES, Rule

MAX_NODES = 2000
"""The e-node limit of an e-graph, as in the paper (Hartmann et al., PACT 2024)."""


@dataclass
class Optimized:
    """The result of :func:`optimize`.

    Attributes
    ----------
    mod : IRModule
        The optimized module.
    reports : list[FunctionReport]
        One report for each Relax function.
    """

    mod: Any
    reports: list[FunctionReport] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(map(str, self.reports))


def optimize(
    mod: Any,
    target: Any,
    *,
    work_dir: str | os.PathLike[str] | None = None,
    price: Price | None = None,
    rules: Sequence[Rule] = ALL_RULES,
    layouts: bool = True,
    max_nodes: int = MAX_NODES,
    search: str = "auto",
    time_budget_s: float = 60.0,
    seed: int = 0,
    make_bench: Callable[..., Bench] | None = None,
) -> Optimized:
    """Search for the fastest graph that is equivalent to a module's. Work in progress.

    With a work directory, kernels are timed on demand, and the best graphs are compared with the
    input. The input is returned unless another graph computes the same outputs and is reliably
    faster. After Ctrl-C, the input is returned, too. Without a work directory, nothing is timed,
    and the graph with the lowest estimate is returned.

    Parameters
    ----------
    mod : IRModule
        The module. Functions with symbolic shapes, impure calls or control flow stay unchanged.
        Pass it in the form that will be lowered: if ``model.prepare.prepare_graph()`` is used,
        apply it first.
    target : Target or str
        A CPU; "auto" for the CPU of this machine.
    work_dir : str | os.PathLike[str] | None
        Directory for the database of trials and for the prices. Later calls with the same directory
        time only new kernels. It may be the directory of ``tune``. With a directory, only ``main``,
        or the only function, is searched, and TVM's thread pool in this process keeps the thread
        count of the target.
    price : Price or None
        Prices kernels if there is no work directory. None: rooflines of this machine.
    rules : Sequence[Rule]
        The rules. Without rules, and with `layouts` off, the returned module is structurally equal
        to the input.
    layouts : bool
        Whether layouts may change.
    max_nodes : int
        The e-node limit of an e-graph.
    search : str
        "saturate": only saturation, up to the limit. "mcts": only tree search. "auto": tree search
        if the saturated e-graph does not fit the limit.
    time_budget_s : float
        Time budget in seconds: for the whole call with a work directory, for the search of each
        function without. A running step is finished.
    seed : int
        The seed of all random choices.
    make_bench : Callable[..., Bench] | None
        Makes the object that times kernels and graphs, with the arguments of ``Workbench``. None:
        ``Workbench``.

    Returns
    -------
    optimized : Optimized
        The module and the reports.

    Raises
    ------
    ValueError
        If an option is out of range, if the directory was made for another target, or if another
        process tunes in it.
    """
    if search not in ("auto", "saturate", "mcts"):
        raise ValueError(f"search is {search!r}, expected 'auto', 'saturate' or 'mcts'")
    if max_nodes < 1:
        raise ValueError(f"max_nodes is {max_nodes}, expected at least 1")
    if not time_budget_s > 0:
        raise ValueError(f"time_budget_s is {time_budget_s}, expected a positive number")
    check_flag("layouts", layouts)
    if price is not None and work_dir is not None:
        raise ValueError("price and work_dir are both given: with a directory prices are measured")
    is_auto = isinstance(target, str) and target == "auto"
    target = cpu_target("auto", 1) if is_auto else parsed_target(target)
    if target.kind.name != "llvm":
        raise ValueError(f"the target is of the kind {target.kind.name!r}, expected 'llvm': a CPU")
    options = _Options(tuple(rules), layouts, max_nodes, search, time_budget_s, seed)
    if work_dir is not None:
        return _measured(mod, target, Path(work_dir), options, make_bench)
    return _estimated(mod, price or RooflinePrice(measure_machine()), options)


@dataclass(frozen=True)
class _Options:
    rules: tuple[Rule, ...]
    layouts: bool
    max_nodes: int
    search: str
    time_budget_s: float
    seed: int

    def search_of(self, imported: Imported, price: Price, report: FunctionReport) -> FunctionSearch:
        return FunctionSearch(
            imported.graph, imported.roots, price, self.rules, self.layouts, self.max_nodes, report
        )


def prepared_for_import(mod: IRModule) -> IRModule:
    """Convert a module to the form that ``import_function`` reads."""
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.ConvertToDataflow()]
    return tvm.transform.Sequential(passes)(mod)


def _relax_functions(mod: IRModule) -> list[tuple[Any, relax.Function]]:
    return [(name, f) for name, f in mod.functions_items() if isinstance(f, relax.Function)]


def _estimated(mod: IRModule, price: Price, options: _Options) -> Optimized:
    """Replace each function with its cheapest graph under fixed prices."""
    result, types = Optimized(mod.clone()), RelaxTypes()
    for name, func in _relax_functions(prepared_for_import(mod)):
        report = FunctionReport(name.name_hint)
        result.reports.append(report)
        start = time.perf_counter()
        try:
            imported = import_function(func, types)
        except NotImported as error:
            report.note = str(error)
            continue
        search = options.search_of(imported, price, report)
        before = search.as_it_came()
        if before is None:
            report.note = "the graph that came in cannot be read back"
            continue
        best = search.best(before, options.search, options.time_budget_s, options.seed)
        report.before_secs, report.after_secs = before.plan.cost, best.plan.cost
        steps = best.plan.steps.values()
        report.conversions = sum(isinstance(step, Conversion) for step in steps)
        imported.graph = best.graph
        _replace(result, name, func, export_function(imported, best.plan, bool(options.rules)))
        report.search_secs = time.perf_counter() - start
    return result


@contextmanager
def _alone(directory: Path, threads: int) -> Iterator[None]:
    """Lock a directory against other processes that tune, and set the number of threads."""
    try:
        with only_writer(directory), worker_threads(threads):
            set_own_threads(threads)
            yield
    except SecondWriterError as error:
        raise ModelError(str(error)) from error


def _measured(
    mod: IRModule,
    target: Target,
    work_dir: Path,
    options: _Options,
    make_bench: Callable[..., Bench] | None,
) -> Optimized:
    """Replace ``main`` with its fastest graph by measured prices, if it beats the input."""
    if make_bench is None:
        # Imported here because it needs Linux. Estimates do not.
        from .pricing.workbench import Workbench

        make_bench = Workbench
    start = time.monotonic()
    stop = StopRequest(start + options.time_budget_s)
    threads = int(target.attrs.get("num-cores", 1))
    cpu = begun_target(work_dir, target, cpu_target(target, threads))
    directory = open_work_dir(work_dir, cpu, threads)
    result = Optimized(mod.clone())
    functions = _relax_functions(prepared_for_import(mod))
    names = [name.name_hint for name, _ in functions]
    entry = names[0] if len(names) == 1 else "main"
    whole = with_main(mod, entry)
    with _alone(directory, threads):
        for name, func in functions:
            report = FunctionReport(name.name_hint)
            result.reports.append(report)
            try:
                if name.name_hint != entry:
                    raise NotImported("only main can be run to compare graphs")
                imported = import_function(func)
            except NotImported as error:
                report.note = str(error)
                continue
            # No speedups for layouts, because the rooflines must be lower bounds.
            price = MeasuredPrice(RooflinePrice(measure_machine(threads), layout_speeds={}))
            search = options.search_of(imported, price, report)
            bench = make_bench(directory, cpu, threads, report.notes.append, options.seed)
            try:
                with stop.on_interrupt():
                    run = MeasuredSearch(
                        whole, imported, price, bench, cpu, stop, options.seed, report
                    )
                    new = run.run(search, options.search, bool(options.rules))
            finally:
                bench.close()
            report.weight_bytes_before = report.weight_bytes_after = weight_bytes(func)
            if new is not None:
                _replace(result, name, func, new)
            report.search_secs = time.monotonic() - start
    return result


def _replace(result: Optimized, name: Any, old: relax.Function, new: relax.Function) -> None:
    result.mod.update_func(result.mod.get_global_var(name.name_hint), new)
    report = result.reports[-1]
    report.weight_bytes_before, report.weight_bytes_after = weight_bytes(old), weight_bytes(new)
