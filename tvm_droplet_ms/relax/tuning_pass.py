# SPDX-License-Identifier: Apache-2.0
"""The pass that tunes a legalized and fused module."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.runtime import Tensor
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ..compat import fast_tune_contexts
from ..search_strategy import DropletStrategy
from ..search_strategy.explorers.evolutionary import EvolutionaryExplorer
from ..search_strategy.explorers.seeded import SeededExplorer
from ..session.database import writing_database
from ..tuning.written_records import WrittenRecords


def check_trials(name: str, value: int, minimum: int) -> None:
    """Raise ``ValueError`` if a number of trials is less than a minimum."""
    if value < minimum:
        raise ValueError(f"{name}={value!r} is out of range: expected an int of at least {minimum}")


@dataclass(kw_only=True)
class ModuleTuner:
    """Tunes all kernels of a module. ``DropletTuneIRMod`` describes the fields."""

    target: Target
    work_dir: str
    max_trials_global: int
    params: Mapping[str, Tensor] = field(default_factory=dict)
    max_trials_per_task: int | None = None
    op_names: Sequence[str] | None = None
    num_trials_per_iter: int = 64
    builder: ms.Builder.BuilderType | None = None
    runner: ms.Runner.RunnerType | None = None
    cost_model: ms.CostModel.CostModelType | None = None
    seed: int | None = None
    strategy_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.max_trials_per_task is not None:
            check_trials("max_trials_per_task", self.max_trials_per_task, 1)
        check_trials("num_trials_per_iter", self.num_trials_per_iter, 1)
        options = self.strategy_options or {}
        if self.cost_model is None:
            self.cost_model = "xgb" if _asks_cost_model(options.get("explorer")) else "none"
        self._strategy = DropletStrategy(**options)

    def tune(self, mod: IRModule, database: ms.Database | None = None) -> ms.Database:
        """Tune a module, and return the database: the given one, or that of ``work_dir``.

        Raises the errors of ``writing_database``, and ``ValueError`` if records did not reach the
        files of ``work_dir``.
        """
        if database is not None:
            self._tune_into(database, mod)
            return database
        with writing_database(self.work_dir) as own:
            written = WrittenRecords(Path(self.work_dir), own)
            self._tune_into(own, mod, written)
        if written.lost:
            # Only Python's built-in exception types get through a TVM pass.
            raise ValueError(written.lost)
        return own

    def _tune_into(
        self, database: ms.Database, mod: IRModule, *callbacks: ms.MeasureCallback
    ) -> None:
        with fast_tune_contexts(), self._measuring() as measure:
            ms.relax_integration.tune_relax(
                mod,
                dict(self.params),
                self.target,
                self.work_dir,
                self.max_trials_global,
                max_trials_per_task=self.max_trials_per_task,
                op_names=None if self.op_names is None else list(self.op_names),
                num_trials_per_iter=self.num_trials_per_iter,
                database=database,
                cost_model=self.cost_model,
                measure_callbacks=[*ms.MeasureCallback.create("default"), *callbacks],
                strategy=self._strategy,
                seed=self.seed,
                **measure,
            )

    @contextmanager
    def _measuring(self) -> Iterator[dict[str, Any]]:
        """Yield the builder and the runner to tune with. Closes only the objects that it makes."""
        given = {"builder": self.builder, "runner": self.runner}
        made: dict[str, Any] = {}
        if missing := [name for name, value in given.items() if value is None]:
            # Imported here because measure/ needs Linux, which TVM's own builder does not.
            from ..measure import PromptRunner, WarmBuilder, fast_measure

            if len(missing) == 2:
                made = fast_measure(self.target, process_wide=False)
            else:
                made = {missing[0]: WarmBuilder() if "builder" in missing else PromptRunner()}
        try:
            yield {**given, **made}
        finally:
            for part in made.values():
                part.close()


def _asks_cost_model(explorer: object) -> bool:
    """True if an explorer, given by name or as an object, asks the cost model that TVM trains."""
    if isinstance(explorer, SeededExplorer):
        return _asks_cost_model(explorer.explorer)
    return explorer == "evolutionary" or isinstance(explorer, EvolutionaryExplorer)


def DropletTuneIRMod(
    params: Mapping[str, Tensor],
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
    *,
    database: ms.Database | None = None,
    **options: Any,
) -> tvm.transform.Pass:
    """Make a pass that tunes a legalized and fused module with ``DropletStrategy``.

    Like ``relax.transform.MetaScheduleTuneIRMod`` (``src/relax/transform/meta_schedule.cc``), but
    with another strategy. The pass returns the module unchanged. The results are in the database,
    and ``relax.transform.MetaScheduleApplyDatabase(work_dir)`` applies them. If weights are marked
    (``AttachAttrLayoutFreeBuffers``), run ``tvm_droplet_ms.measure.PrefetchWeights()`` after it,
    and before ``SplitLayoutRewritePreproc``: kernels are measured with it. Like TVM's pass, it
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
    database : Database, optional
        Database of the records. Defaults to the database of `work_dir`, opened when the pass runs;
        a torn last line is removed first.
    num_trials_per_iter : int
        Maximum trials of one batch; 64 by default. The scheduler gives every task one batch before
        it gives any task a second batch. So with few trials and many tasks, smaller batches reach
        more tasks.
    builder, runner : Builder or str, Runner or str, optional
        The builder and the runner of the candidates. Default to the pair that
        ``fast_measure(target)`` returns, which measures on this machine and needs Linux. If only
        one is given, the other is a ``WarmBuilder()`` or a ``PromptRunner()``. "local" selects
        TVM's own.
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
    tuner = ModuleTuner(
        target=target,
        params=params,
        work_dir=work_dir,
        max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task,
        op_names=op_names,
        **options,
    )

    def tune_module(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        if max_trials_global > 0:
            tuner.tune(mod, database)
        return mod

    return tvm.transform.module_pass(
        tune_module, opt_level=0, name="DropletTuneIRMod", traceable=True
    )
