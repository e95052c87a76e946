# SPDX-License-Identifier: Apache-2.0
"""DropletStrategy in Relax: a tuning pass and a tuning pipeline.

``import tvm_droplet_ms`` registers the pipeline with TVM as "droplet_tuning"
(``compat/registration.py``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.runtime import Tensor
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from .compat import fast_tune_contexts
from .model.kernels.block_names import name_blocks
from .model.kernels.channelwise import mark_channelwise
from .model.kernels.fixed_layouts import keep_layouts
from .model.kernels.groups.shuffled_convolution import read_shuffled
from .model.kernels.inlining import limit_inlining
from .model.kernels.registration import legalize_map, register_schedule_rules
from .model.prepare import prepare_graph
from .model.shared_constants import share_constants
from .search_strategy import DropletStrategy
from .search_strategy.history import is_for_target
from .session.database import open_database, writing_database


def _check_trials(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise ValueError(f"{name}={value!r} is out of range: expected an int of at least {minimum}")


def _make_tuner(
    target: Target,
    *,
    params: Mapping[str, Tensor],
    work_dir: str,
    max_trials_per_task: int | None,
    num_trials_per_iter: int,
    op_names: Sequence[str] | None,
    builder: ms.Builder.BuilderType | None,
    runner: ms.Runner.RunnerType | None,
    cost_model: ms.CostModel.CostModelType | None,
    strategy_options: Mapping[str, Any],
    **tuning: Any,
) -> Callable[..., ms.Database]:
    """Check the arguments, and make a function that tunes a module into a database with them."""
    if max_trials_per_task is not None:
        _check_trials("max_trials_per_task", max_trials_per_task, 1)
    _check_trials("num_trials_per_iter", num_trials_per_iter, 1)
    if cost_model is None:
        cost_model = "none" if strategy_options.get("explorer", "random") == "random" else "xgb"
    tune = partial(
        ms.relax_integration.tune_relax,
        target=target,
        params=dict(params),
        work_dir=work_dir,
        max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter,
        op_names=None if op_names is None else list(op_names),
        strategy=DropletStrategy(**strategy_options),
        cost_model=cost_model,
        **tuning,
    )

    def tune_and_close(mod: IRModule, database: ms.Database) -> ms.Database:
        with fast_tune_contexts(), _measuring(target, builder, runner) as measure:
            return tune(mod, database=database, **measure)

    return tune_and_close


@contextmanager
def _measuring(
    target: Target,
    builder: ms.Builder.BuilderType | None,
    runner: ms.Runner.RunnerType | None,
) -> Iterator[dict[str, Any]]:
    """The builder and the runner to tune with. Closes those that it makes, not those given."""
    given = {"builder": builder, "runner": runner}
    made = _make_missing(target, given)
    try:
        yield {**given, **made}
    finally:
        for part in made.values():
            part.close()


def _make_missing(target: Target, given: Mapping[str, Any]) -> dict[str, Any]:
    """Make the builder, the runner, or both, if they are not given."""
    missing = [name for name, value in given.items() if value is None]
    if not missing:
        return {}
    # Imported here because measure/ needs Linux, which tuning with TVM's own builder does not.
    from .measure import PromptRunner, WarmBuilder, fast_measure

    if len(missing) == 2:
        return fast_measure(target, process_wide=False)
    return {"builder": WarmBuilder()} if missing == ["builder"] else {"runner": PromptRunner()}


def DropletTuneIRMod(
    params: Mapping[str, Tensor],
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
    *,
    num_trials_per_iter: int = 64,
    builder: ms.Builder.BuilderType | None = None,
    runner: ms.Runner.RunnerType | None = None,
    database: ms.Database | None = None,
    cost_model: ms.CostModel.CostModelType | None = None,
    seed: int | None = None,
    strategy_options: Mapping[str, Any] | None = None,
) -> tvm.transform.Pass:
    """Make a pass that tunes a legalised and fused module with ``DropletStrategy``.

    Like ``relax.transform.MetaScheduleTuneIRMod`` (``src/relax/transform/meta_schedule.cc``), but
    with another strategy. The pass returns the module unchanged. The results are in the database,
    and ``relax.transform.MetaScheduleApplyDatabase(work_dir)`` applies them. Like TVM's, the pass
    tunes for the target that is current when it is made.

    While it tunes, each ``TuneContext`` imports the tensor intrinsics of its own target only
    (``tvm_droplet_ms.compat.fast_tune_contexts``). Afterwards TVM is as it was.

    Parameters
    ----------
    params : Mapping[str, Tensor]
        Parameters to bind to the function ``main`` before the tasks are extracted.
    work_dir : str
        Directory of the database and of TVM's log of each task. Created if missing. A second run
        continues from its database.
    max_trials_global : int
        Trials of all tasks together. 0 tunes nothing.
    max_trials_per_task : int, optional
        Maximum trials of one task. Defaults to `max_trials_global`.
    op_names : Sequence[str], optional
        Tunes only the tasks whose names contain one of these. Defaults to all tasks.
    num_trials_per_iter : int
        Maximum trials of one batch. The scheduler gives every task one batch before it gives any
        task a second one. So with few trials and many tasks, smaller batches reach more tasks.
    builder, runner : Builder or str, Runner or str, optional
        What builds and what times the candidates. Default to those of ``fast_measure(target)``,
        which measure on this machine and need Linux. If only one is given, the other is a
        ``WarmBuilder()`` or a ``PromptRunner()``. "local" names TVM's own.
    database : Database, optional
        Database of the records. Defaults to that of `work_dir`, opened when the pass runs; a torn
        last line is cut off first.
    cost_model : CostModel or str, optional
        The cost model that TVM trains beside the search. Defaults to "none", because the strategy
        asks its own prior; or to "xgb" with an ``explorer`` other than "random", which asks it.
    seed : int, optional
        Seed of all random choices.
    strategy_options : Mapping[str, Any], optional
        Keyword arguments of ``DropletStrategy``, such as ``prior=None``.

    Returns
    -------
    ret : tvm.transform.Pass
        The pass.

    Raises
    ------
    ValueError
        If there is no current target, or a number of trials is out of range. When the pass runs: if
        the module has no task to tune, or the database in `work_dir` cannot be read.
    RuntimeError
        When the pass runs: if another process tunes in `work_dir`. Not with a ``database``.
    """
    target = Target.current()
    if target is None:
        raise ValueError(
            "DropletTuneIRMod found no current target to tune for: make the pass inside "
            "`with target:`"
        )
    _check_trials("max_trials_global", max_trials_global, 0)
    tune = _make_tuner(
        target,
        params=params,
        work_dir=work_dir,
        max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter,
        op_names=op_names,
        builder=builder,
        runner=runner,
        cost_model=cost_model,
        seed=seed,
        strategy_options=strategy_options or {},
    )

    def tune_module(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        if max_trials_global > 0:
            with writing_database(work_dir) if database is None else nullcontext(database) as into:
                tune(mod, database=into)
        return mod

    return tvm.transform.module_pass(
        tune_module, opt_level=0, name="DropletTuneIRMod", traceable=True
    )


def _records_of_target(database: ms.Database, target: Target) -> ms.Database:
    """Copy the records of a target, because TVM queries a database without regard to the target."""
    records = ms.database.MemoryDatabase()
    for record in database.get_all_tuning_records():
        if is_for_target(record, target):
            records.commit_workload(record.workload.mod)
            records.commit_tuning_record(record)
    return records


def _prepare_bound_graph() -> tvm.transform.Pass:
    """``prepare_graph`` for modules whose weights are constants. Others are left as they are.

    A layout of weights that are parameters would have to be changed in each run of the model.
    """

    def prepare(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
        for function in functions:
            inputs = (function.attrs or {}).get("num_input", len(function.params))
            if int(inputs) < len(function.params):
                return mod
        return prepare_graph()(mod)

    return tvm.transform.module_pass(prepare, opt_level=0, name="PrepareBoundGraph")


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
    norms are folded into weights, and convolutions computed in NHWC. The pipeline legalises, fuses,
    tunes every kernel and applies the best schedule of each. The module is then ready for
    ``tvm.compile``. Unlike TVM's, it applies only the records of `target`, and only those in
    `work_dir`. ``relax.get_pipeline("droplet_tuning", ...)`` makes the same pipeline.

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
        Whether to search for a faster graph first, on a CPU; see ``graph.optimize``. In work.
    graph_budget_s : float
        Seconds of that search.
    **strategy_options
        Keyword arguments of ``DropletStrategy``, such as ``prior=None``.

    Returns
    -------
    ret : tvm.transform.Pass
        The pipeline.

    Raises
    ------
    ValueError
        If a number of trials is out of range, or a graph is to be optimized for another target
        than a CPU. When the pipeline runs: if the module has no task to tune, or the database in
        `work_dir` cannot be read.
    RuntimeError
        When the pipeline runs: if another process tunes in `work_dir`. Not with 0 trials.
    """
    target = Target(target)
    _check_trials("total_trials", total_trials, 0)
    if optimize_graph and target.kind.name != "llvm":
        raise ValueError(
            f"optimize_graph=True with a target of the kind {target.kind.name!r}: expected 'llvm', "
            "a CPU; pass optimize_graph=False"
        )
    tune = _make_tuner(
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
    before_tuning = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.pipeline.zero_pipeline(),
    ]
    if target.kind.name == "llvm":
        register_schedule_rules()
        decompose, canonicalize, fuse = before_tuning
        legalize = relax.transform.LegalizeOps(legalize_map())
        before_tuning = [
            _prepare_bound_graph(),
            decompose,
            canonicalize,
            read_shuffled(),
            relax.transform.DeadCodeElimination(),
            legalize,
            name_blocks(),
            fuse,
            limit_inlining(),
            mark_channelwise(),
            share_constants(),
        ]
    if optimize_graph:
        from .graph import OptimizeGraph

        before_tuning.insert(1, OptimizeGraph(target, work_dir, graph_budget_s, seed or 0))
    after_applying = []
    if cpu_weight_prepack:
        before_tuning += [relax.transform.AttachAttrLayoutFreeBuffers(), keep_layouts()]
        after_applying = [
            relax.transform.SplitLayoutRewritePreproc(),
            relax.transform.LiftTransformParams(),
            relax.transform.FoldConstant(),
        ]

    def tune_and_apply(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        with target:
            mod = tvm.transform.Sequential(before_tuning)(mod)
            # The search for a graph writes to the same files, and has to be done before.
            if total_trials > 0:
                with writing_database(work_dir) as database:
                    tune(mod, database=database)
            else:
                database = open_database(work_dir)
            with _records_of_target(database, target):
                mod = relax.transform.MetaScheduleApplyDatabase()(mod)
            return tvm.transform.Sequential(after_applying)(mod)

    return tvm.transform.module_pass(tune_and_apply, opt_level=0, name="droplet_tuning_pipeline")
