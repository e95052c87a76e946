# SPDX-License-Identifier: Apache-2.0
"""TVM's own tuning of a whole model, with a time limit.

This is TVM's pipeline ``relax.pipeline.static_shape_tuning_pipeline`` in its fastest configuration:
with this package's builder and runner, batches of 8 trials, weights packed for the schedules, and
TVM's random search. With small batches, no kernel waits for 64 trials of another. The evolutionary
search takes 10 to 30 s to propose a batch for a convolution, whatever the batch size (2026-11-23,
commit 4eec769).
"""

import os
import time
from typing import Any

from tvm_ffi import structural_hash

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.frontends import import_model
from tvm_droplet_ms.measure import fast_measure
from tvm_droplet_ms.measure.prefetch.prefetch_weights import PrefetchWeights
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.session.threads import set_worker_threads
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.run_context import PhaseTimer
from tvm_droplet_ms.tuning.schedules import best_records

_UNLIMITED = 2**30
"""The limit of trials of a run that only its time limit ends."""

_BATCH = 8
"""Trials per batch. TVM measures a full batch of one task before it turns to the next."""


def tune_with_tvm(
    model: Any, work_dir: str | os.PathLike[str], deadline: float, seed: int, threads: int
) -> dict[str, Any]:
    """Tune a model with TVM's pipeline.

    TVM's task schedulers have no time limit, so the search strategy ends the tasks: once it
    proposes no more candidates, TVM's loop collects the remaining results and returns. Applying the
    schedules and compiling take extra time, which favors the pipeline. Returns ``trials``;
    ``kernels``, each with its name, weight and the origin of its schedule; ``parts``, the seconds
    of each part; ``compiled``, the compiled model.
    """
    set_worker_threads(threads)
    target = cpu_target("auto", threads)
    parts = PhaseTimer()
    with parts("import"):
        mod = import_model(model).mod
    os.makedirs(work_dir, exist_ok=True)
    database = ms.database.JSONDatabase(work_dir=str(work_dir))
    with target, parts("graph"):
        mod = tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.CanonicalizeBindings(),
                relax.pipeline.zero_pipeline(),
                relax.transform.AttachAttrLayoutFreeBuffers(),
            ]
        )(mod)
    batches: list[int] = []
    search = ms.search_strategy.SearchStrategy.create("replay-trace")
    tools = fast_measure(target, process_wide=False)
    try:
        with parts("tuning"), fast_tune_contexts():
            ms.relax_integration.tune_relax(
                mod,
                {},
                target,
                str(work_dir),
                max_trials_global=_UNLIMITED,
                num_trials_per_iter=_BATCH,
                database=database,
                strategy=UntilDeadline(search, deadline, batches),
                seed=seed,
                **tools,
            )
    finally:
        for tool in tools.values():
            tool.close()
    with target, parts("compile"):
        compiled = CompiledModel(_compile(mod, database, target))
    return {
        "trials": sum(batches),
        "kernels": _kernels(mod, database, target),
        "parts": parts.secs,
        "compiled": compiled,
    }


@derived_object
class UntilDeadline(ms.search_strategy.PySearchStrategy):  # type: ignore[misc]
    """Forwards to another strategy until a time of ``time.monotonic``.

    TVM ends a task whose strategy returns no candidates (``task_scheduler.cc``). ``batches``:
    receives the number of results of each batch.
    """

    def __init__(
        self, strategy: ms.search_strategy.SearchStrategy, deadline: float, batches: list[int]
    ) -> None:
        """Constructor"""
        super().__init__()
        self._strategy = strategy
        self._deadline = deadline
        self._batches = batches

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        self._strategy._initialize_with_tune_context(context)

    def pre_tuning(self, *arguments: Any) -> None:
        """Begin a run; see ``SearchStrategy.pre_tuning``."""
        self._strategy.pre_tuning(*arguments)

    def post_tuning(self) -> None:
        """End the run."""
        self._strategy.post_tuning()

    def generate_measure_candidates(self) -> Any:
        """The next batch; None at the end of the run."""
        late = time.monotonic() >= self._deadline
        return None if late else self._strategy.generate_measure_candidates()

    def notify_runner_results(self, measure_candidates: Any, results: Any) -> None:
        """Take the results of the last batch."""
        self._strategy.notify_runner_results(list(measure_candidates), list(results))
        self._batches.append(len(results))

    def clone(self) -> ms.search_strategy.SearchStrategy:
        """Wrap a clone of the strategy, with the same deadline."""
        return UntilDeadline(self._strategy.clone(), self._deadline, self._batches)


def _compile(mod: IRModule, database: ms.Database, target: Target) -> relax.VMExecutable:
    transform = relax.transform
    with database:
        mod = transform.MetaScheduleApplyDatabase()(mod)
    # The pipeline also lifts the packing of parameters. Here all weights are constants.
    packing = [PrefetchWeights(), transform.SplitLayoutRewritePreproc(), transform.FoldConstant()]
    return tvm.compile(tvm.transform.Sequential(packing)(mod), target)


def _kernels(mod: IRModule, database: ms.Database, target: Target) -> list[dict[str, Any]]:
    best = best_records(database, target)
    return [
        {
            "name": str(task.task_name),
            "weight": int(task.weight),
            "schedule": "measured" if structural_hash(task.dispatched[0]) in best else "untouched",
        }
        for task in ms.relax_integration.extract_tasks(mod, target)
    ]
