# SPDX-License-Identifier: Apache-2.0
"""The search strategy for a whole model's tasks, and its starting points."""

from collections.abc import Sequence
from typing import Any

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.target import Target

from ...search_strategy import DropletStrategy
from ...search_strategy.design_spaces import EncodedSpaces
from ...search_strategy.explorers.base import SearchContext
from ...search_strategy.explorers.random_sampling import RandomExplorer
from ...search_strategy.explorers.seeded import SeededExplorer
from ...search_strategy.known_schedules import (
    KnownLike,
    TunedTask,
    find_schedules,
    nearest_points,
    points_of_same_loops,
)
from ...search_strategy.published.decisions import SpacePoint
from ..picks.picks import FirstPicks
from ..schedules import best_records

DRAWN = 8
"""Number of random schedules to choose from, besides the seeds of a task. The picks were already
chosen from many: drawing and encoding as many again would take longer than measuring the batch."""

NEIGHBORS = 3
"""Number of nearest tuned tasks, of this model or another, whose best decisions a task starts
with."""

SIBLINGS = 4
"""Maximum number of schedules of other tasks with the same loops that a resumed task tries."""

PICKED = 4
"""Number of its own best predicted schedules that a task starts with."""


class TaskSeeds:
    """The starting points of a model's tasks: ``seeds`` of a ``SeededExplorer``.

    The best predicted point comes first. The points of the nearest tuned tasks follow, refitted to
    the extents of this task, and then more of the best predicted points. A task that already has as
    many measurements starts only with the best points of its siblings. Siblings are tasks with the
    same loops, such as a convolution with and without the operators fused after it.
    """

    def __init__(
        self,
        mods: Sequence[IRModule],
        database: Database,
        target: Target,
        picks: FirstPicks | None = None,
        known: Sequence[TunedTask] = (),
    ) -> None:
        self._workloads = list(dict.fromkeys(map(structural_hash, mods)))
        self._database = database
        self._target = target
        self._picks = picks
        self._known = list(known)
        self._tuned: dict[TuningRecord, TunedTask] = {}

    def __call__(self, search: SearchContext) -> list[SpacePoint]:
        """Return the starting points of a task, the most promising first."""
        if len(search.history) >= PICKED + NEIGHBORS:
            return self.of_siblings(search)
        pick = None if self._picks is None else self._picks.find(search.history.mod, self._target)
        picked = [] if pick is None else list(pick.points[:PICKED])
        points = [*picked[:1], *self.transferred(search.spaces), *picked[1:]]
        return list(dict.fromkeys(points))

    def transferred(self, spaces: EncodedSpaces) -> list[SpacePoint]:
        """Return decisions of the nearest tuned tasks of the same kinds, refitted to ``spaces``.

        There are at most ``NEIGHBORS``, the nearest first; on ties, this model's tasks come first.
        """
        tuned = [task for _, task in self._tuned_tasks()]
        return nearest_points([*tuned, *self._known], spaces, NEIGHBORS)

    def of_siblings(self, search: SearchContext) -> list[SpacePoint]:
        """Return the decisions of tuned tasks with the same loops that this task has not tried.

        There are at most ``SIBLINGS``, from the fastest task first.
        """
        tried = {search.spaces.find(trace) for _, trace, _ in search.history.measurements()}
        best = search.history.best()
        own = None if best is None else search.spaces.find(best.trace)
        tasks = [task for _, task in sorted(self._tuned_tasks(), key=lambda pair: pair[0])]
        points = points_of_same_loops(tasks, search.spaces, own[0] if own else 0)
        return [point for point in points if point not in tried][:SIBLINGS]

    def _tuned_tasks(self) -> list[tuple[float, TunedTask]]:
        """Return the best seconds and the best decisions of each measured task."""
        best = best_records(self._database, self._target)
        tasks = []
        for record, secs in (best[workload] for workload in self._workloads if workload in best):
            if record not in self._tuned:
                self._tuned[record] = TunedTask.from_trace(record.trace)
            tasks.append((secs, self._tuned[record]))
        return tasks


def model_strategy(
    tasks: Sequence[ExtractedTask],
    database: Database,
    target: Target,
    picks: FirstPicks | None = None,
    known: KnownLike = "auto",
    **options: Any,
) -> DropletStrategy:
    """Make the strategy for a model; each task gets a clone of it.

    A task's first batch has its best predicted schedules, the decisions of the nearest tuned tasks,
    and a few random schedules. ``options``: override the options of ``DropletStrategy``.
    """
    mods = [task.dispatched[0] for task in tasks]
    seeds = TaskSeeds(mods, database, target, picks, find_schedules(known, target))
    explorer = SeededExplorer(seeds, RandomExplorer(pool_size=DRAWN))
    # The benefit of a draft has not been measured for models, where each kernel gets few trials.
    return DropletStrategy(**{"explorer": explorer, "draft": None} | options)
