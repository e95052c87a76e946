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
"""The two descents of ``PostOptStrategy``: what TVM makes of the droplet's positions."""

import json
import random
from collections.abc import Container, Sequence
from typing import Any, Protocol

from tvm.error import InternalError
from tvm.ir import IRModule
from tvm.s_tir import Schedule, ScheduleError, Trace
from tvm.s_tir.meta_schedule.runner import RunnerResult

from ...search_strategy.candidates import Candidate, Replayer
from ...search_strategy.decisions import Sketch
from ...search_strategy.history import History, Measured, valid_secs
from ...search_strategy.neighbourhood import Axis, ChoiceAxis, OrderedAxis, Point, TileAxis
from .post_opt import FAILED_SECS, RecordedTrace, ShippedDroplet
from .post_opt_mended import FactorAxis, ListedAxis, MendedAxis, MendedDroplet

_DROP_ABOVE = 0.75
"""The random number above which a candidate loses its postprocessors (``space.py``)."""

_REFUSALS = (ScheduleError, InternalError)
"""What a schedule primitive raises; TVM's code skips a candidate at any error (``space.py``)."""


class PostOptDescent(Protocol):
    """The second phase, round by round."""

    def ask(self) -> list[Candidate]:
        """What to measure next; empty at the end."""

    def tell(self, results: Sequence[RunnerResult]) -> None:
        """The results of a whole round."""


class ShippedDescent:
    """TVM's droplet from the best record, with what its ``Space.run`` makes of a position.

    Its faults are kept:

    - a quarter of the candidates, at random, are measured without their postprocessors;
    - the others get the instructions that the postprocessors of the start have left, whatever has
      become of the tiles that those were made for;
    - nothing keeps a program from being measured again and again.

    Parameters
    ----------
    best : Measured
        The best record.
    replayer : Replayer
        Replays traces on the workload.
    generator : random.Random
        Decides which candidates lose their postprocessors.
    modules : Container[int] | None
        The structural hashes of the modules that a table has; None where all can be measured. A
        candidate of another module gets the task's postprocessors in place of its own.
    batch_size : int
        Up to how many candidates a round is filled with longer steps.
    max_trials : int
        The trials of the descent.
    """

    def __init__(
        self,
        best: Measured,
        replayer: Replayer,
        generator: random.Random,
        modules: Container[int] | None = None,
        *,
        batch_size: int,
        max_trials: int,
    ) -> None:
        trace = json.loads(json.dumps(best.trace.as_json(), default=lambda number: number.value))
        self._space = RecordedTrace(trace)
        self._droplet = ShippedDroplet(self._space.sizes, best.secs, batch_size, max_trials)
        self._replayer = replayer
        self._generator = generator
        self._modules = modules

    def ask(self) -> list[Candidate]:
        """The candidates of the next round; empty at the end."""
        while positions := self._droplet.ask():
            instantiated = [self._instantiate(self._space.write(one)) for one in positions]
            candidates = [candidate for candidate in instantiated if candidate is not None]
            if candidates:
                return candidates
            self.tell([])
        return []

    def tell(self, results: Sequence[RunnerResult]) -> None:
        """Take the results of the round, one for each candidate."""
        self._droplet.tell([_secs_or_failure(result) for result in results])

    def _instantiate(self, trace: list[Any]) -> Candidate | None:
        """Replay a trace with its recorded postprocessors, or without any; None if that fails."""
        recorded, schedule = (_schedule(self._replayer.mod) for _ in range(2))
        try:
            Trace.apply_json_to_schedule(trace, recorded)
            drop = self._generator.random() > _DROP_ABOVE
            recorded.trace.apply_to_schedule(schedule, remove_postproc=drop)
        except _REFUSALS as error:
            self._replayer.dropped[f"TVM's droplet: {type(error).__name__}"] += 1
            return None
        candidate = Candidate.from_schedule(schedule)
        if self._modules is None or candidate.module in self._modules:
            return candidate
        return self._replayer.replay(recorded.trace) or candidate


class MendedDescent:
    """The mended droplet from the best record, over the decisions of its sketch.

    Parameters
    ----------
    best : Measured
        The best record.
    replayer : Replayer
        Replays traces on the workload, and runs the task's postprocessors.
    history : History
        What was measured, which is never measured again.
    parallel_limit : int
        The largest parallel extent to try.
    batch_size : int
        Up to how many candidates a round is filled with longer steps.
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
        self._droplet = MendedDroplet(
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
        self._sketch = Sketch.from_trace(trace)
        self._replayer = replayer
        self._history = history
        self._parallel_limit = parallel_limit
        self._trace = trace
        self._chosen: set[int] = set()
        self.start = self._sketch.read(trace)
        self.candidates: dict[Point, Candidate] = {}

    def axes_at(self, point: Point) -> list[MendedAxis]:
        if point in self.candidates:
            self._trace = self.candidates[point].trace
        around = self._replayer.neighbourhood(self._sketch, self._trace, self._parallel_limit)
        return [mended for axis in around.axes for mended in _mended(axis)]

    def realise(self, point: Point) -> Point | None:
        candidate = self._replayer.replay(self._sketch.write(self._trace, point))
        if candidate is None or candidate in self._history or candidate.module in self._chosen:
            return None
        self._chosen.add(candidate.module)
        realised = self._sketch.read(candidate.trace)
        self.candidates[realised] = candidate
        return realised


def _mended(axis: Axis) -> list[MendedAxis]:
    """The coordinates of a decision: those of a tile are its positions but the outermost."""
    if isinstance(axis, TileAxis):
        limits = [-1] * (axis.length - 2) + [axis.max_innermost_factor]
        return [FactorAxis(axis.start, place, limit) for place, limit in enumerate(limits, start=1)]
    if isinstance(axis, OrderedAxis):
        return [ListedAxis(axis.slot, axis.values)]
    if isinstance(axis, ChoiceAxis):
        return [ListedAxis(axis.slot, tuple(range(axis.count)))]
    raise TypeError(f"axis is {axis!r}, expected a TileAxis, an OrderedAxis or a ChoiceAxis")


def _schedule(mod: IRModule) -> Schedule:
    return Schedule(mod, seed=1, debug_mask="none", error_render_level="none")


def _secs_or_failure(result: RunnerResult) -> tuple[float, ...]:
    if result.run_secs is None:
        return (FAILED_SECS,)
    return tuple(float(secs) for secs in result.run_secs)
