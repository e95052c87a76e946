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
"""A schedule for every kernel before any trial: the best predicted of some sampled ones.

A kernel without a record runs as naive loops, orders of magnitude too slow.
"""

import os
import random
from collections.abc import Callable, Sequence

import numpy as np

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import ExtractedTask, SpaceGenerator, TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.target import Target

from ..compat import fast_tune_contexts
from ..cost_model.training.training_data import target_text
from ..search_strategy.candidates import Candidate, Replayer
from ..search_strategy.design_spaces import DesignSpaces
from ..search_strategy.explorers.random_sampling import RandomExploration
from ..search_strategy.history import History
from ..search_strategy.logger import logger
from ..search_strategy.prior import CostModelPrior, PriorLike, find_prior
from .pick_file import PickFile
from .picks import FirstPick, FirstPicks, last_line, restore, task_key
from .roofline import MachineRates, measure_machine, task_bound
from .sample_sizes import sample_sizes

KEPT = 8
"""The best predicted points of a task that are kept for the search to start with."""


def is_tunable(task: ExtractedTask) -> bool:
    """Whether a task is still without a schedule; TVM refuses to tune one that has it."""
    return not (task.mod.attrs or {}).get("tirx.is_scheduled", False)


def pick_schedules(
    tasks: Sequence[ExtractedTask],
    *,
    work_dir: str | os.PathLike[str] | None = None,
    prior: PriorLike = "auto",
    most: int = 64,
    least: int = 16,
    space: SpaceGenerator | str = "post-order-apply",
    rates: MachineRates | None = None,
    num_threads: int = 1,
    seed: int = 0,
    is_late: Callable[[], bool] = lambda: False,
) -> FirstPicks:
    """Pick a schedule for every task, the heaviest task first.

    Parameters
    ----------
    tasks : Sequence[ExtractedTask]
        The tasks of a model. Those that are scheduled already are left out.
    work_dir : str | os.PathLike[str], optional
        The directory of the file of picks. Picks in it are used again, and new ones are added.
        None keeps none.
    prior : str | os.PathLike[str] | CostModel | None
        The cost model to ask, as ``DropletStrategy`` takes it. Where there is none for a target,
        the first valid schedule is picked.
    most, least : int
        The schedules to sample of the heaviest tasks, and of the others; see ``sample_sizes``.
        At least 1.
    space : SpaceGenerator | str
        The design space, as ``TuneContext`` takes it; the same as that of the tuning.
    rates : MachineRates, optional
        The machine's rates, which say which tasks are heavy. Defaults to those of this machine.
    num_threads : int
        The threads that may extract features.
    seed : int
        Seed of the sampling. Each task has a generator of its own, so that a task's pick does not
        depend on the others.
    is_late : Callable[[], bool]
        Asked before each task. Once it says True, a task gets its first valid schedule, and no
        model is asked.

    Returns
    -------
    picks : FirstPicks
        Names the tasks without any valid schedule, and why. They are left as they are.

    Raises
    ------
    ValueError
        If `most` or `least` is less than 1.
    """
    for name, value in (("most", most), ("least", least)):
        if value < 1:
            raise ValueError(f"{name} is {value!r}, expected an integer of at least 1")
    tasks = [task for task in tasks if is_tunable(task)]
    rates = measure_machine() if rates is None else rates
    bounds = [task_bound(task.dispatched[0], rates) or 0.0 for task in tasks]
    stakes = [int(task.weight) * bound for task, bound in zip(tasks, bounds, strict=True)]
    file = None if work_dir is None else PickFile(work_dir)
    stored = {} if file is None else file.read()
    picks = FirstPicks()
    models: dict[str, CostModel | None] = {}
    sizes = sample_sizes(stakes, most, least)
    with fast_tune_contexts():
        for index in sorted(range(len(tasks)), key=lambda index: -stakes[index]):
            task = tasks[index]
            mod, target = task.dispatched[0], task.target
            key = task_key(mod, target)
            if picks.find(mod, target) is not None:
                continue
            kind = target_text(target)
            if kind not in models:
                models[kind] = find_prior(prior, target)
            model = models[kind]
            known = restore(mod, stored.get(key), model is not None)
            if known is not None:
                picks.add(key, known)
                continue
            late = is_late()
            sampling = _Sampling(mod, target, space, num_threads, seed)
            try:
                pick = sampling.pick(1 if late else sizes[index], None if late else model)
            # A task whose space TVM cannot make, or whose features it cannot extract, raises errors
            # of many types. The other tasks are not to suffer from it.
            except Exception as error:
                picks.unscheduled[task.task_name] = last_line(error)
                continue
            if pick is None:
                picks.unscheduled[task.task_name] = sampling.why_empty()
                continue
            picks.add(key, pick)
            # A pick that was made in a hurry is made again by the next run.
            if file is not None and not late:
                file.append([pick.to_line(key)])
    for name, reason in picks.unscheduled.items():
        logger.warning("%s: no valid schedule was found, so that it stays naive: %s", name, reason)
    return picks


class _Sampling:
    """Samples one task's design spaces.

    Parameters
    ----------
    mod, target, space, num_threads, seed
        As of ``pick_schedules``.
    """

    def __init__(
        self,
        mod: IRModule,
        target: Target,
        space: SpaceGenerator | str,
        num_threads: int,
        seed: int,
    ) -> None:
        self._mod = mod
        self._target = target
        self._space = space
        self._num_threads = num_threads
        self._seed = seed
        self._replayer: Replayer | None = None

    def pick(self, count: int, model: CostModel | None) -> FirstPick | None:
        """The best predicted of some samples; the first one without a model."""
        context = TuneContext(
            self._mod,
            target=self._target,
            space_generator=self._space,
            rand_state=self._seed + 1,
            num_threads=self._num_threads,
        )
        schedules = context.generate_design_space()
        postprocs = context.space_generator.postprocs or []
        self._replayer = Replayer(self._mod, list(postprocs), random.Random(self._seed))
        history = History(self._mod, self._target)
        candidates = RandomExploration(self._replayer, schedules, history).ask(count)
        if not candidates:
            return None
        predicted: list[float] = []
        # One schedule is picked whatever is predicted of it.
        if model is not None and len(candidates) > 1:
            scores = self._predict(model, candidates)
            order = np.argsort(-scores, kind="stable")
            candidates = [candidates[index] for index in order]
            predicted = [float(scores[index]) for index in order]
        spaces = DesignSpaces([schedule.trace for schedule in schedules])
        points = [spaces.find(candidate.trace) for candidate in candidates[:KEPT]]
        found = [index for index, point in enumerate(points) if point is not None]
        return FirstPick(
            self._mod,
            candidates[0].trace,
            tuple(point for point in points if point is not None),
            tuple(predicted[index] for index in found) if predicted else (),
        )

    def _predict(self, model: CostModel, candidates: Sequence[Candidate]) -> np.ndarray:
        prior = CostModelPrior(model, self._mod, self._target, self._num_threads)
        scores = prior.predict(candidates)
        return np.where(np.isfinite(scores), scores, 0.0)

    def why_empty(self) -> str:
        """What dropped the samples."""
        dropped = {} if self._replayer is None else self._replayer.dropped
        reasons = ", ".join(f"{count} by {reason}" for reason, count in dropped.items())
        return f"all samples were dropped: {reasons}" if reasons else "its design space is empty"
