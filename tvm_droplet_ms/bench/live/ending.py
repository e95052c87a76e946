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
"""Ends TVM's own tuning by the clock.

TVM's task schedulers know no clock. The gradient scheduler tells its callbacks nothing before each
task had a batch, which takes most of an hour for a model with 30 tasks, so that a callback cannot
end it in time; and a callback that raises loses the batches that were measured and not yet told.
So the search strategy ends the tasks: once it has nothing more to propose, TVM's loop takes the
results of what was measured and returns. What is left of a batch fails at once, in building or in
running: 64 builds take minutes on a busy machine.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerFuture, RunnerInput, RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    MeasureCandidate,
    PySearchStrategy,
    SearchStrategy,
)

OUT_OF_TIME = "not measured: the time is over"
"""The error of a candidate that was not built or not run."""

Build = Callable[[Any, Any, Any], Any]
"""A function that builds a module, as ``LocalBuilder`` takes it."""


class Deadline:
    """A moment to end at.

    Parameters
    ----------
    moment : float
        By `clock`, in seconds.
    clock : Callable[[], float]
        Tells the time.
    """

    def __init__(self, moment: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.moment = moment
        self._clock = clock

    @property
    def is_past(self) -> bool:
        """Whether the moment is over."""
        return self._clock() >= self.moment


def ending_build(moment: float) -> Build:
    """A function for ``LocalBuilder`` that builds as TVM does, and nothing after a moment.

    Parameters
    ----------
    moment : float
        By ``time.monotonic``, which all processes of the machine share.
    """
    message = OUT_OF_TIME

    # A nested function reaches the workers by value: this module's imports would take their time.
    def build(mod: Any, target: Any, params: Any) -> Any:
        import time

        from tvm.s_tir.meta_schedule.builder.local_builder import default_build

        if time.monotonic() >= moment:
            # TVM's builder would report a TimeoutError as a build that took too long.
            raise RuntimeError(message)
        return default_build(mod, target, params)

    return build


@derived_object
class EndingStrategy(PySearchStrategy):  # type: ignore[misc]
    """A search strategy that proposes nothing more after a deadline.

    Parameters
    ----------
    strategy : SearchStrategy
        What proposes until then.
    deadline : Deadline
        When to end.
    """

    def __init__(self, strategy: SearchStrategy, deadline: Deadline) -> None:
        """Constructor"""
        super().__init__()
        self._strategy = strategy
        self._deadline = deadline

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._strategy._initialize_with_tune_context(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """See ``SearchStrategy.pre_tuning``."""
        self._strategy.pre_tuning(
            max_trials, num_trials_per_iter, list(design_spaces), database, cost_model
        )

    def post_tuning(self) -> None:
        """See ``SearchStrategy.post_tuning``."""
        self._strategy.post_tuning()

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The strategy's next batch; None after the deadline."""
        if self._deadline.is_past:
            return None
        candidates: list[MeasureCandidate] | None = self._strategy.generate_measure_candidates()
        # Evolution takes up to 20 s. Building what it found would take as long again.
        return None if self._deadline.is_past else candidates

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """See ``SearchStrategy.notify_runner_results``."""
        self._strategy.notify_runner_results(list(measure_candidates), list(results))

    def clone(self) -> SearchStrategy:
        """A strategy of the same kind and deadline."""
        clone: SearchStrategy = EndingStrategy(self._strategy.clone(), self._deadline)
        return clone


@derived_object
class EndingRunner(PyRunner):  # type: ignore[misc]
    """A runner that runs nothing more after a deadline.

    Parameters
    ----------
    runner : Runner
        What runs a candidate.
    deadline : Deadline
        When to end. Candidates that are left then get the error ``OUT_OF_TIME``.

    Attributes
    ----------
    trials : int
        The candidates that were run.
    """

    def __init__(self, runner: Any, deadline: Deadline) -> None:
        """Constructor"""
        super().__init__()
        self.trials = 0
        self._runner = runner
        self._deadline = deadline

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Run candidates one after the other; see ``Runner.run``."""
        futures: list[RunnerFuture] = []
        for runner_input in runner_inputs:
            if self._deadline.is_past:
                futures.append(_failed(OUT_OF_TIME))
            else:
                self.trials += 1
                # With += TVM's array would make one of the list.
                futures.extend(self._runner.run([runner_input]))
        return futures


def _failed(message: str) -> RunnerFuture:
    return RunnerFuture(lambda: True, lambda: RunnerResult(None, message))
