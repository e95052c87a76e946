# SPDX-License-Identifier: Apache-2.0
"""The search strategy of a whole model's tasks."""

from collections.abc import Sequence
from typing import Any

from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.database import Database
from tvm.target import Target

from ...search_strategy import DropletStrategy
from ...search_strategy.explorers import RandomExplorer, SeededExplorer
from ...search_strategy.known.known_schedules import KnownLike, find_schedules
from ..picks.picks import FirstPicks
from .transfer import TaskSeeds

DRAWN = 8
"""Random schedules to choose from beside the seeds of a task. The picks were chosen from many
already: to draw and to encode them once more would take longer than to measure the batch."""


def model_strategy(
    tasks: Sequence[ExtractedTask],
    database: Database,
    target: Target,
    picks: FirstPicks | None = None,
    known: KnownLike = "auto",
    **options: Any,
) -> DropletStrategy:
    """Make the strategy that each task of a model gets a clone of.

    A task's first batch has its best predicted schedules, the decisions of the nearest tuned tasks
    and a few random schedules. A task of which little more is expected leaves its time to others.

    - ``tasks``: all tasks of the model.
    - ``database``: the database that the run measures into.
    - ``target``: the target of the run.
    - ``picks``: the first picks; None for none.
    - ``known``: schedules of other models' tasks: "auto" for those that the package ships, the path
      of a file, or None.
    - ``**options``: keyword arguments of ``DropletStrategy``, which replace those made here.
    """
    mods = [task.dispatched[0] for task in tasks]
    seeds = TaskSeeds(mods, database, target, picks, find_schedules(known))
    explorer = SeededExplorer(seeds, RandomExplorer(pool_size=DRAWN))
    defaults: dict[str, Any] = {"explorer": explorer}
    # What a draft is worth in a model, where each kernel gets few trials, has not been measured.
    defaults["draft"] = None
    return DropletStrategy(**defaults | options)
