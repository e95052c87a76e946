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
"""The descent of ``PostOptStrategy`` on the decisions of a record."""

from collections.abc import Sequence

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.runner import RunnerResult

from ...search_strategy.candidates import Candidate, Replayer
from ...search_strategy.decisions import Sketch
from ...search_strategy.history import History, Measured, valid_secs
from ...search_strategy.neighbourhood import Axis, ChoiceAxis, OrderedAxis, Point, TileAxis
from .post_opt import Coordinate, FactorAxis, ListedAxis, PostOptDroplet


class PostOptDescent:
    """Descends from the best record, over the decisions of its sketch.

    Parameters
    ----------
    best : Measured
        The best record.
    replayer : Replayer
        Replays traces on the workload, and runs the task's postprocessors.
    history : History
        Measured modules, which are never measured again.
    parallel_limit : int
        The largest parallel extent to try.
    batch_size : int
        Longer steps fill a round up to this many candidates.
    max_trials : int
        The trials of the descent.
    """

    def __init__(
        self,
        best: Measured,
        replayer: Replayer,
        history: History,
        parallel_limit: int,
        *,
        batch_size: int,
        max_trials: int,
    ) -> None:
        self._decisions = _ReplayedDecisions(best.trace, replayer, history, parallel_limit)
        self._droplet = PostOptDroplet(
            self._decisions.start,
            best.secs,
            self._decisions.axes_at,
            self._decisions.realise,
            batch_size=batch_size,
            max_trials=max_trials,
        )

    def ask(self) -> list[Candidate]:
        """The candidates of the next round, none of them measured before; empty at the end."""
        return [self._decisions.candidates[point] for point in self._droplet.ask()]

    def tell(self, results: Sequence[RunnerResult]) -> None:
        """Take the results of the round, one for each candidate."""
        self._droplet.tell([valid_secs(result.run_secs) for result in results])


class _ReplayedDecisions:
    """The decisions of a record, and the candidates that replaying others gives."""

    def __init__(
        self, trace: Trace, replayer: Replayer, history: History, parallel_limit: int
    ) -> None:
        self._sketch = Sketch.of(trace)
        self._replayer = replayer
        self._history = history
        self._parallel_limit = parallel_limit
        self._trace = trace
        self._chosen: set[int] = set()
        self.start = self._sketch.read(trace)
        self.candidates: dict[Point, Candidate] = {}

    def axes_at(self, point: Point) -> list[Coordinate]:
        if point in self.candidates:
            self._trace = self.candidates[point].trace
        around = self._replayer.neighbourhood(self._sketch, self._trace, self._parallel_limit)
        return [coordinate for axis in around.axes for coordinate in _coordinates(axis)]

    def realise(self, point: Point) -> Point | None:
        candidate = self._replayer.replay(self._sketch.write(self._trace, point))
        if candidate is None or candidate in self._history or candidate.module in self._chosen:
            return None
        self._chosen.add(candidate.module)
        realised = self._sketch.read(candidate.trace)
        self.candidates[realised] = candidate
        return realised


def _coordinates(axis: Axis) -> list[Coordinate]:
    """Coordinates of a decision: of a tile, its positions but the outermost."""
    if isinstance(axis, TileAxis):
        limits = [-1] * (axis.length - 2) + [axis.max_innermost_factor]
        return [FactorAxis(axis.start, place, limit) for place, limit in enumerate(limits, start=1)]
    if isinstance(axis, OrderedAxis):
        return [ListedAxis(axis.slot, axis.values)]
    if isinstance(axis, ChoiceAxis):
        return [ListedAxis(axis.slot, tuple(range(axis.count)))]
    raise TypeError(f"axis is {axis!r}, expected a TileAxis, an OrderedAxis or a ChoiceAxis")
