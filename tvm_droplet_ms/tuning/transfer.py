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
"""What a task starts with: its first picks, and the decisions of the nearest tuned tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm.ir import IRModule
from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.database import Database
from tvm.target import Target

from ..search_strategy.decision_kinds import PERFECT_TILE
from ..search_strategy.decisions import Sketch
from ..search_strategy.design_spaces import DesignSpaces, SpacePoint
from ..search_strategy.explorers import SearchContext
from ..search_strategy.history import is_for_target, valid_secs
from ..search_strategy.neighbourhood import Point
from .picks import FirstPicks
from .refit import extent_distance, refit_tile

NEIGHBOURS = 2
"""The nearest tuned tasks whose best decisions a task starts with."""

PICKED = 4
"""The best predicted schedules of its own that a task starts with."""

OTHER_SKETCH = 4.0
"""The doublings that another operation in the kernel, such as another activation, counts for."""


@dataclass(frozen=True)
class TunedTask:
    """The best decisions of a task.

    Parameters
    ----------
    sketch : Sketch
        The sketch of its best schedule.
    point : Point
        The decisions.
    """

    sketch: Sketch
    point: Point

    @staticmethod
    def from_trace(trace: Trace) -> "TunedTask":
        """Read the decisions of a recorded trace."""
        simple = trace.simplified(remove_postproc=True)
        sketch = Sketch.from_trace(simple)
        return TunedTask(sketch, sketch.read(simple))


class TaskSeeds:
    """The points that the tasks of a model start with: ``seeds`` of a ``SeededExplorer``.

    The best predicted point comes first, then those of the nearest tuned tasks, refitted to the
    extents of this one, and then more of the best predicted ones.

    Parameters
    ----------
    mods : Sequence[IRModule]
        The workloads of the model's tasks.
    database : Database
        Their measurements so far.
    target : Target
        The target of the run.
    picks : FirstPicks | None
        The first picks; None for none.
    """

    def __init__(
        self,
        mods: Sequence[IRModule],
        database: Database,
        target: Target,
        picks: FirstPicks | None = None,
    ) -> None:
        self._mods = list(mods)
        self._database = database
        self._target = target
        self._picks = picks
        self._tuned: dict[str, TunedTask] = {}

    def __call__(self, search: SearchContext) -> list[SpacePoint]:
        """The points to start a task with, the most promising first."""
        pick = None if self._picks is None else self._picks.find(search.history.mod, self._target)
        picked = [] if pick is None else list(pick.points[:PICKED])
        points = [*picked[:1], *self.transferred(search.spaces), *picked[1:]]
        return list(dict.fromkeys(points))

    def transferred(self, spaces: DesignSpaces) -> list[SpacePoint]:
        """The decisions of the nearest tuned tasks, refitted to these design spaces.

        Parameters
        ----------
        spaces : DesignSpaces
            Those of the task.

        Returns
        -------
        points : list[SpacePoint]
            At most ``NEIGHBOURS``, the nearest first. A task is a neighbour where it makes the same
            kinds of decisions.
        """
        found: list[tuple[float, SpacePoint]] = []
        for tuned in self._tuned_tasks():
            for index, sketch in enumerate(spaces.sketches):
                if _kinds(sketch) == _kinds(tuned.sketch):
                    distance, point = _refit(tuned, sketch, spaces, index)
                    found.append((distance, (index, point)))
        found.sort(key=lambda entry: entry[0])
        return list(dict.fromkeys(point for _, point in found))[:NEIGHBOURS]

    def _tuned_tasks(self) -> list[TunedTask]:
        """The best measured decisions of each task that has any."""
        tuned = []
        for mod in self._mods:
            if not self._database.has_workload(mod):
                continue
            workload = self._database.commit_workload(mod)
            for record in self._database.get_top_k(workload, 1):
                if not valid_secs(record.run_secs) or not is_for_target(record, self._target):
                    continue
                key = str(record.trace)
                if key not in self._tuned:
                    self._tuned[key] = TunedTask.from_trace(record.trace)
                tuned.append(self._tuned[key])
        return tuned


def _kinds(sketch: Sketch) -> list[tuple[str, int]]:
    """The kind and the number of values of each decision."""
    return [(decision.kind.name, decision.length) for decision in sketch.decisions]


def _refit(
    tuned: TunedTask, sketch: Sketch, spaces: DesignSpaces, index: int
) -> tuple[float, Point]:
    """The decisions of a tuned task in another design space, and how far the two lie apart."""
    start = spaces.start(index)
    trace = spaces.trace((index, start))
    point: Point = ()
    before, after = [], []
    for old, new in zip(tuned.sketch.decisions, sketch.decisions, strict=True):
        value = old.value(tuned.point)
        if new.kind == PERFECT_TILE:
            extent = prod(new.value(start))
            before.append(prod(value))
            after.append(extent)
            limit = PERFECT_TILE.max_innermost_factor(trace.insts[new.inst])
            value = refit_tile(value, extent, limit)
        point += value
    distance = extent_distance(before, after)
    return distance + (0.0 if sketch.key == tuned.sketch.key else OTHER_SKETCH), point
