# SPDX-License-Identifier: Apache-2.0
"""The pipeline that lowers a model, tunes its kernels and applies their schedules."""

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ..compat.flags import check_flag
from ..design_space.dot_products.dot_units import VNNI, has_features
from ..design_space.dot_products.rounded_vectors import RoundVectors
from ..design_space.matrix_tiles.kept_tiles import KeepTiles
from ..design_space.native_vectors import register_floats
from ..host import parsed_target
from ..measure.prefetch.prefetch_weights import PrefetchWeights
from ..model.kernels.lowering_passes import lowering_passes
from ..model.kernels.registration import register_schedule_rules
from ..model.prepare import prepare_graph
from ..model.residuals.overwrite import overwrite_residuals
from ..search_strategy.published.candidates import is_for_target
from ..session.database import open_database
from ..tuning.compile.keep_nan import keep_nan
from .module_tuner import check_trials, make_tuner


def _records_of_target(database: ms.Database, target: Target) -> ms.Database:
    """Copy the records of a target, because TVM queries a database without regard to the target."""
    records = ms.database.MemoryDatabase()
    for record in database.get_all_tuning_records():
        if is_for_target(record, target):
            records.commit_workload(record.workload.mod)
            records.commit_tuning_record(record)
    return records


def _prepare_bound_graph() -> tvm.transform.Pass:
    """Make a pass that runs ``prepare_graph`` on modules whose weights are constants.

    It leaves other modules unchanged: each run of the model would have to change the layout of
    weights that are parameters.
    """

    def prepare(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
        for function in functions:
            inputs = (function.attrs or {}).get("num_input", len(function.params))
            if int(inputs) < len(function.params):
                return mod
        target = Target.current(allow_none=True)
        has_vnni = has_features(target, *VNNI)
        return prepare_graph(lanes=register_floats(target), has_vnni=has_vnni)(mod)

    return tvm.transform.module_pass(prepare, opt_level=0, name="PrepareBoundGraph")


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
    op_names: Sequence[str] | None = None,
    num_trials_per_iter: int = 64,
    builder: ms.Builder.BuilderType | None = None,
    runner: ms.Runner.RunnerType | None = None,
    cost_model: ms.CostModel.CostModelType | None = None,
    seed: int | None = None,
    optimize_graph: bool = False,
    graph_budget_s: float = 60.0,
    **strategy_options: Any,
) -> tvm.transform.Pass:
    """Make a pipeline that tunes a static-shape model with ``DropletStrategy``.

    Like ``relax.pipeline.static_shape_tuning_pipeline``, but with another strategy. On a CPU, a
    model whose weights are constants is prepared first (``model.prepare.prepare_graph``): batch
    norms are folded into weights, and convolutions computed in NHWC. The pipeline legalizes, fuses,
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
        Whether to tune the layout of a CPU kernel's weights too. The compiled module then has a
        function ``<name>_transform_params``, whose result replaces the parameters of ``<name>``.
    max_trials_per_task : int, optional
        Maximum trials of one task. Defaults to `total_trials`.
    op_names, num_trials_per_iter, builder, runner, cost_model, seed
        As in :func:`DropletTuneIRMod`.
    optimize_graph : bool
        Whether to search for a faster graph first, on a CPU, by
        ``tvm_droplet_papers.graph.optimize``, which is installed apart. Work in progress.
    graph_budget_s : float
        Time budget of this search in seconds.
    **strategy_options
        Keyword arguments of ``DropletStrategy``, such as ``prior=None``.

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
    tune = make_tuner(
        target,
        params={},
        work_dir=work_dir,
        max_trials_global=total_trials,
        max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter,
        op_names=op_names,
        builder=builder,
        runner=runner,
        cost_model=cost_model,
        seed=seed,
        strategy_options=strategy_options,
    )
    is_cpu = target.kind.name == "llvm"
    if is_cpu:
        register_schedule_rules()
    before_tuning = [
        *([_prepare_bound_graph()] if is_cpu else []),
        *([_optimize_graph(target, work_dir, graph_budget_s, seed)] if optimize_graph else []),
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        *lowering_passes(is_plain=not is_cpu, packs_weights=cpu_weight_prepack),
    ]
    after_applying = [keep_nan()] if is_cpu else []
    if cpu_weight_prepack:
        after_applying += [
            *([PrefetchWeights()] if is_cpu else []),
            relax.transform.SplitLayoutRewritePreproc(),
            relax.transform.LiftTransformParams(),
            relax.transform.FoldConstant(),
        ]

    def tune_and_apply(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        with target:
            mod = tvm.transform.Sequential(before_tuning)(mod)
            # The graph search writes to the same files, and has to finish first.
            database = tune(mod) if total_trials > 0 else open_database(work_dir)
            with _records_of_target(database, target):
                mod = relax.transform.MetaScheduleApplyDatabase()(mod)
            mod = tvm.transform.Sequential(after_applying)(mod)
            if not is_cpu:
                return mod
            return RoundVectors(target)(overwrite_residuals()(KeepTiles()(mod)))

    return tvm.transform.module_pass(tune_and_apply, opt_level=0, name="droplet_tuning_pipeline")
