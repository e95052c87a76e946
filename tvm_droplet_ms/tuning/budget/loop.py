# SPDX-License-Identifier: Apache-2.0
"""The measuring loop of a kernel or of the kernels of a model, which is TVM's own."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import SpaceGenerator, TuneContext
from tvm.s_tir.meta_schedule.builder import Builder
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.measure_callback import (
    AddToDatabase,
    MeasureCallback,
    RemoveBuildArtifact,
)
from tvm.s_tir.meta_schedule.runner import Runner
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy
from tvm.s_tir.meta_schedule.tune import tune_tasks
from tvm.target import Target

from ...compat import fast_tune_contexts
from ...design_space.sound_space import sound_space
from .scheduler import ClockScheduler, OnBatch, TuningClock

_UNLIMITED = 2**30
"""The trial limit if only the deadline ends the run."""


@dataclass(frozen=True)
class TuningSetup:
    """What a run searches and measures with.

    - ``work_dir``, ``database``: where the records go. ``builder``, ``runner``: who measures.
    - ``strategy``: each task gets a clone of it. ``space``: the design space of all tasks.
    - ``callbacks``: called after each batch, after TVM's own callbacks.
    """

    work_dir: str
    database: Database
    builder: Builder
    runner: Runner
    strategy: SearchStrategy
    space: SpaceGenerator | Callable[[Schedule], Any] | str = "post-order-apply"
    callbacks: Sequence[MeasureCallback] = ()
    seed: int = 0

    def context(self, mod: IRModule, target: Target, **options: Any) -> TuneContext:
        """The context of a task; ``options`` are further arguments of ``TuneContext``."""
        return TuneContext(
            mod,
            target=target,
            space_generator=sound_space(self.space, mod, target),
            search_strategy=self.strategy,
            **options,
        ).clone()


@dataclass(frozen=True)
class Limits:
    """When a run ends.

    - ``deadline``: the end in the time of the run's clock. It is exceeded by at most one batch.
    - ``trials``: the limit for all tasks together, exceeded by less than one batch; None for none.
    - ``trials_per_task``: the limit of each task; None for none.
    - ``batch``: the maximum number of trials of a batch.
    - ``should_stop``: called before each batch; returns why the run ends now, empty to go on.
    """

    deadline: float = math.inf
    trials: int | None = None
    trials_per_task: int | None = None
    batch: int = 8
    should_stop: Callable[[], str] = lambda: ""


def measure(
    contexts: Sequence[TuneContext],
    weights: Sequence[float],
    timing: TuningClock,
    setup: TuningSetup,
    limits: Limits,
) -> None:
    """Measure batches of the tasks that ``timing`` chooses, until it or a limit ends the run."""
    with fast_tune_contexts():
        tune_tasks(
            tasks=list(contexts),
            task_weights=list(weights),
            work_dir=setup.work_dir,
            max_trials_global=_UNLIMITED if limits.trials is None else limits.trials,
            max_trials_per_task=(
                _UNLIMITED if limits.trials_per_task is None else limits.trials_per_task
            ),
            num_trials_per_iter=limits.batch,
            builder=setup.builder,
            runner=setup.runner,
            database=setup.database,
            cost_model="none",
            measure_callbacks=[
                AddToDatabase(),
                OnBatch(timing.finish),
                RemoveBuildArtifact(),
                *setup.callbacks,
            ],
            task_scheduler=ClockScheduler(timing),
        )
