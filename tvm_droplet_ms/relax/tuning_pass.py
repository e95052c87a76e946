# SPDX-License-Identifier: Apache-2.0
"""The pass that tunes a legalized and fused module."""

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.runtime import Tensor
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from .module_tuner import check_trials, make_tuner


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
    """Make a pass that tunes a legalized and fused module with ``DropletStrategy``.

    Like ``relax.transform.MetaScheduleTuneIRMod`` (``src/relax/transform/meta_schedule.cc``), but
    with another strategy. The pass returns the module unchanged. The results are in the database,
    and ``relax.transform.MetaScheduleApplyDatabase(work_dir)`` applies them. Like TVM's pass, it
    tunes for the target that is current when it is made.

    While it tunes, each ``TuneContext`` imports only the tensor intrinsics of its own target
    (``tvm_droplet_ms.compat.fast_tune_contexts``). Afterwards, TVM's behavior is restored.

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
        task a second batch. So with few trials and many tasks, smaller batches reach more tasks.
    builder, runner : Builder or str, Runner or str, optional
        The builder and the runner of the candidates. Default to the pair that
        ``fast_measure(target)`` returns, which measures on this machine and needs Linux. If only
        one is given, the other is a ``WarmBuilder()`` or a ``PromptRunner()``. "local" selects
        TVM's own.
    database : Database, optional
        Database of the records. Defaults to the database of `work_dir`, opened when the pass runs;
        a torn last line is removed first.
    cost_model : CostModel or str, optional
        The cost model that TVM trains during the search. Defaults to "none", because the strategy
        asks its own prior, or to "xgb" with an evolutionary ``explorer``, which asks the cost
        model.
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
        the module has no task to tune, the database in `work_dir` cannot be read, or not all
        records could be written to it.
    RuntimeError
        When the pass runs: if another process tunes in `work_dir`. Not with a ``database``.
    """
    target = Target.current()
    if target is None:
        raise ValueError(
            "DropletTuneIRMod found no current target to tune for: make the pass inside "
            "`with target:`"
        )
    check_trials("max_trials_global", max_trials_global, 0)
    tune = make_tuner(
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
            tune(mod, database)
        return mod

    return tvm.transform.module_pass(
        tune_module, opt_level=0, name="DropletTuneIRMod", traceable=True
    )
