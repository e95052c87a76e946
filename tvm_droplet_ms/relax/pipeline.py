# SPDX-License-Identifier: Apache-2.0
"""The pipeline that lowers a model, tunes its kernels and applies their schedules."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ..compat.flags import check_flag
from ..host import parsed_target
from ..model.kernels.lowering_passes import lowering_passes, register_schedule_rules
from ..search_strategy.published.candidates import is_for_target
from ..session.database import open_database
from ..tuning.compile.finishing_passes import finishing_passes
from ..tuning.graph_passes import graph_passes
from .tuning_pass import ModuleTuner, check_trials


def _records_of_target(database: ms.Database, target: Target) -> ms.Database:
    """Copy the records of a target, because TVM queries a database without regard to the target."""
    records = ms.database.MemoryDatabase()
    for record in database.get_all_tuning_records():
        if is_for_target(record, target):
            records.commit_workload(record.workload.mod)
            records.commit_tuning_record(record)
    return records


def _has_constant_weights(mod: IRModule) -> bool:
    """True if all parameters of the Relax functions of a module are inputs."""
    functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
    return all(
        int((f.attrs or {}).get("num_input", len(f.params))) >= len(f.params) for f in functions
    )


def _optimize_graph(
    target: Target, work_dir: str, budget_s: float, seed: int | None
) -> tvm.transform.Pass:
    """The pass that searches for a faster graph, from a package that is installed apart."""
    try:
        from tvm_droplet_papers.graph import OptimizeGraph
    except ModuleNotFoundError as error:
        raise ValueError(
            "optimize_graph=True needs the package tvm_droplet_papers: install it by `pip install "
            "./papers` in a clone of this project, or pass optimize_graph=False"
        ) from error

    return OptimizeGraph(target, work_dir, budget_s, seed or 0)


def droplet_tuning_pipeline(
    total_trials: int,
    target: str | Mapping[str, Any] | Target,
    work_dir: str = "tuning_logs",
    cpu_weight_prepack: bool = False,
    max_trials_per_task: int | None = None,
    *,
    optimize_graph: bool = False,
    graph_budget_s: float = 60.0,
    **options: Any,
) -> tvm.transform.Pass:
    """Make a pipeline that tunes a static-shape model with ``DropletStrategy``.

    Like ``relax.pipeline.static_shape_tuning_pipeline``, but with another strategy. On a CPU, a
    model whose weights are constants is prepared first (``model.prepare.prepare_graph``): batch
    norms are folded into weights, and convolutions computed in NHWC. The layouts of its weights are
    tuned too, so that ``tune`` can use the same database. The pipeline legalizes, fuses,
    tunes every kernel and applies the best schedule of each. The module is then ready for
    ``tvm.compile``. Unlike TVM's pipeline, it applies only records in `work_dir`, and only records
    of `target`. ``relax.get_pipeline("droplet_tuning", ...)`` makes the same pipeline.

    Parameters
    ----------
    total_trials : int
        Trials of all tasks together. 0 tunes nothing, but applies the records in `work_dir`.
    target : str or Mapping[str, Any] or Target
        Target to tune for. A CPU target needs ``num-cores``.
    work_dir : str
        Directory of the database and of TVM's log of each task. Created if missing. A second run
        continues from its database.
    cpu_weight_prepack : bool
        Whether to tune the layout of a CPU kernel's weights too if they are parameters. The
        compiled module then has a function ``<name>_transform_params``, whose result replaces the
        parameters of ``<name>``.
    max_trials_per_task : int, optional
        Maximum trials of one task. Defaults to `total_trials`.
    optimize_graph : bool
        Whether to search for a faster graph first, on a CPU, by
        ``tvm_droplet_papers.graph.optimize``, which is installed apart. Work in progress.
    graph_budget_s : float
        Time budget of this search in seconds.
    **options
        ``op_names``, ``num_trials_per_iter``, ``builder``, ``runner``, ``cost_model`` and ``seed``
        as in :func:`DropletTuneIRMod`. Others are keyword arguments of ``DropletStrategy``, such as
        ``prior=None``.

    Returns
    -------
    ret : tvm.transform.Pass
        The pipeline.

    Raises
    ------
    ValueError
        If a number of trials is out of range, a flag is not a bool, or a graph is to be optimized
        for a target other than a CPU. When the pipeline runs: if the module has no task to tune,
        the database in `work_dir` cannot be read, or not all records could be written to it.
    RuntimeError
        When the pipeline runs: if another process tunes in `work_dir`. Not with 0 trials.
    """
    target = parsed_target(target)
    check_trials("total_trials", total_trials, 0)
    check_flag("cpu_weight_prepack", cpu_weight_prepack)
    check_flag("optimize_graph", optimize_graph)
    if optimize_graph and target.kind.name != "llvm":
        raise ValueError(
            f"optimize_graph=True with a target of the kind {target.kind.name!r}: expected 'llvm', "
            "a CPU; pass optimize_graph=False"
        )
    names = {each.name for each in fields(ModuleTuner)}
    tuner = ModuleTuner(
        target=target,
        work_dir=work_dir,
        max_trials_global=total_trials,
        max_trials_per_task=max_trials_per_task,
        strategy_options={name: options[name] for name in options.keys() - names},
        **{name: options[name] for name in options.keys() & names},
    )
    is_cpu = target.kind.name == "llvm"
    if is_cpu:
        register_schedule_rules()
    graph_search = (
        [_optimize_graph(target, work_dir, graph_budget_s, tuner.seed)] if optimize_graph else []
    )

    def tune_and_apply(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        is_prepared = is_cpu and _has_constant_weights(mod)
        packs_weights = cpu_weight_prepack or is_prepared
        before_tuning = [
            *([each for _, each in graph_passes(target)] if is_prepared else []),
            *graph_search,
            relax.transform.DecomposeOpsForInference(),
            relax.transform.CanonicalizeBindings(),
            *lowering_passes(is_plain=not is_cpu, packs_weights=packs_weights),
        ]
        packing = [
            relax.transform.SplitLayoutRewritePreproc(),
            relax.transform.LiftTransformParams(),
            relax.transform.FoldConstant(),
        ]
        with target:
            mod = tvm.transform.Sequential(before_tuning)(mod)
            # The graph search writes to the same files, and has to finish first.
            database = tuner.tune(mod) if total_trials > 0 else open_database(work_dir)
            with _records_of_target(database, target):
                mod = relax.transform.MetaScheduleApplyDatabase()(mod)
            finish = finishing_passes(target, packing if packs_weights else [])
            return tvm.transform.Sequential(finish)(mod)

    return tvm.transform.module_pass(tune_and_apply, opt_level=0, name="droplet_tuning_pipeline")
