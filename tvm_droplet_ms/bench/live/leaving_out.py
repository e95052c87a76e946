# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Tunes a model as ``tune`` does, with a part left out."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isinf
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.database import Database
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...search_strategy import DropletStrategy
from ...search_strategy.known_schedules import KnownLike
from ...tuning.experience import Experience
from ...tuning.frontends import import_model
from ...tuning.kernel_tuner import KernelTuner
from ...tuning.lowering import lower
from ...tuning.model_tuning import ModelTuning, graph_passes
from ...tuning.output_check import EXACT_TOLERANCE, WINOGRAD_TOLERANCE, make_check
from ...tuning.parts import Parts
from ...tuning.picks import FirstPicks
from ...tuning.priorities import Priorities, Stake
from ...tuning.result import TuneResult
from ...tuning.stop import StopRequest
from ...tuning.strategy import model_strategy
from ...tuning.target import cpu_target
from ...tuning.threads import set_own_threads, set_worker_threads
from ...tuning.work_dir import open_work_dir

LAYOUT_FREE = "layout_free_buffers"
"""The attribute by which a kernel's schedule may change the layout of an argument."""


@dataclass(frozen=True)
class Leaving:
    """What is left out.

    Parameters
    ----------
    passes : Collection[str]
        Names of graph passes.
    exact : bool
        Whether Winograd's algorithm is.
    experience : Collection[str]
        Fields of ``Experience``: what is known of other models.
    tuner : Mapping[str, Any]
        Arguments of ``KernelTuner`` that leave out a part.
    """

    passes: Collection[str] = ()
    exact: bool = True
    experience: Collection[str] = ()
    tuner: Mapping[str, Any] = field(default_factory=dict)


def tune_without(
    model: Any,
    leaving: Leaving,
    time_budget_s: float,
    work_dir: str | os.PathLike[str],
    seed: int,
    trials: int | None = None,
    experience: Experience | None = None,
) -> TuneResult:
    """Tune a model on one thread, with a part left out; see ``tune``.

    Raises
    ------
    ValueError
        If there is no graph pass of a name.
    """
    started = time.monotonic()
    passes = graph_passes()
    unknown = set(leaving.passes) - {name for name, _ in passes}
    if unknown:
        raise ValueError(
            f"no graph pass is named {sorted(unknown)}; there are {[name for name, _ in passes]}"
        )
    set_worker_threads(1)
    target = cpu_target("auto", 1)
    directory = open_work_dir(work_dir, target, 1)
    parts = Parts()
    with parts("import"):
        imported = import_model(model)
    with parts("check"):
        set_own_threads(1)
        tolerance = EXACT_TOLERANCE if leaving.exact else WINOGRAD_TOLERANCE
        check = make_check(imported, target, tolerance, seed)
    tuning = ModelTuning(
        imported,
        target,
        1,
        directory,
        check,
        leaving.exact,
        parts,
        seed,
        replace(experience or Experience(), **dict.fromkeys(leaving.experience)),
        passes=[(name, step) for name, step in passes if name not in leaving.passes],
        make_tuner=partial(KernelTuner, **leaving.tuner),
    )
    return tuning.run(StopRequest(started + time_budget_s), trials)


def lower_unpacked(mod: IRModule, target: Target) -> IRModule:
    """``lower``, with kernels whose weights keep their layout."""
    lowered = lower(mod, target)
    for variable, function in lowered.functions_items():
        if isinstance(function, PrimFunc):
            lowered.update_func(variable, function.without_attr(LAYOUT_FREE))
    return lowered


def strategy_without_transfer(
    tasks: Sequence[ExtractedTask],
    database: Database,
    target: Target,
    picks: FirstPicks | None = None,
    known: KnownLike = "auto",
    **options: Any,
) -> DropletStrategy:
    """``model_strategy``, with tasks that know of no others of their model."""
    return model_strategy((), database, target, picks, known, **options)


class GradientPriorities(Priorities):
    """Chooses tasks by the rule of TVM's ``GradientBased`` scheduler, with its defaults.

    Every task is visited once in the order of the model. Then the next batch is that of the largest
    gradient: the task's weight, times a mean of what its last batches gained and of its best time
    over the number of its batches.

    Parameters
    ----------
    stakes : Sequence[Stake]
        The tasks.
    stop_when_converged : bool
        As ``Priorities`` takes it; this rule knows no convergence.
    alpha : float
        The share of the last batches' gain in the mean.
    window : int
        The number of those batches.
    """

    def __init__(
        self,
        stakes: Sequence[Stake],
        *,
        stop_when_converged: bool = False,
        alpha: float = 0.2,
        window: int = 3,
    ) -> None:
        super().__init__(stakes, stop_when_converged=stop_when_converged)
        self._weights = [stake.weight for stake in stakes]
        self._bests: list[list[float]] = [[] for _ in stakes]
        self._ended: set[int] = set()
        self._alpha = alpha
        self._window = window

    def tell(self, task: int, best_secs: float, cost_secs: float) -> None:
        """Take the result of a batch."""
        super().tell(task, best_secs, cost_secs)
        before = self._bests[task][-1] if self._bests[task] else inf
        self._bests[task].append(min(before, best_secs))

    def end(self, task: int) -> None:
        """Leave out a task whose search has ended."""
        super().end(task)
        self._ended.add(task)

    def next(self, secs_left: float = inf, busy: Collection[int] = ()) -> int | None:
        """Choose the task of the next batch, however long it takes: the rule knows no clock."""
        tasks = [
            task for task in range(len(self._bests)) if task not in self._ended and task not in busy
        ]
        for task in tasks:
            if not self._bests[task]:
                return task
        return max(tasks, key=self._gradient, default=None)

    def _gradient(self, task: int) -> float:
        bests = self._bests[task]
        best = bests[-1]
        if isinf(best):
            return -inf
        gained = (
            (bests[-1 - self._window] - best) / self._window if len(bests) > self._window else 0
        )
        gradient = self._alpha * gained + (1 - self._alpha) * best / len(bests)
        return self._weights[task] * gradient


LEAVING: Mapping[str, Leaving] = {
    "full": Leaving(),
    "no layout": Leaving(passes=("ConvertToNHWC", "ShuffleInnermost")),
    "no folding": Leaving(passes=("FoldConstantsWithNumPy", "FoldPads", "FoldAffine")),
    "no packing": Leaving(tuner={"lower_graph": lower_unpacked}),
    "no known schedules": Leaving(experience=("known",)),
    "no first picks": Leaving(tuner={"picking": Experience(None, None)}),
    "no clock scheduler": Leaving(tuner={"make_priorities": GradientPriorities}),
    "no transfer": Leaving(tuner={"make_strategy": strategy_without_transfer}),
    "no prior": Leaving(experience=("prior",)),
    "winograd": Leaving(exact=False),
}
"""What each of ``VARIANTS`` leaves out."""
