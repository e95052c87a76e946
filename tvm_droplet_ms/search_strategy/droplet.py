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
"""DropletStrategy: the object that TVM calls."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tvm_ffi import register_global_func

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel, RandomModel
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    EvolutionarySearch,
    MeasureCandidate,
    PySearchStrategy,
    SearchStrategy,
)

from .candidates import Replayer
from .decisions import Sketch, largest_parallel_extent
from .explorer import EvolutionaryExplorer, Explorer, RandomExplorer
from .history import History
from .journal import Journal
from .log import logger
from .model_descent import ModelDescent
from .search import WITHOUT, Batch, Budget, DropletSearch, SearchOptions

_EXPLORERS = ("random", "evolutionary")


@dataclass
class _Run:
    """The state of one tuning run, from ``pre_tuning`` to ``post_tuning``."""

    search: DropletSearch
    batches: Iterator[Batch]
    budget: Budget
    explorer: Explorer
    pending: Batch | None = None
    finished: bool = False


@derived_object
class DropletStrategy(PySearchStrategy):
    """Explore briefly, then descend coordinate by coordinate on a model of what was measured.

    A MetaSchedule search strategy after "Explore as a Storm, Exploit as a Raindrop" (arXiv
    2406.20037), inside the trial budget and over a trace's own sampled decisions: tile sizes,
    categorical choices, compute locations and the extent of the parallel loop. Of the steps from
    the best schedules, a Gaussian process tells which are worth measuring.

    Parameters
    ----------
    explore_trials : int
        How many trials of a task to explore for before the descent, the records of its database
        included. At least 1.
    num_starts : int
        From how many of the best to step. At least 1.
    descent_batch_size : int
        The most candidates of a descent's batch. A batch is no larger than an eighth of what was
        measured, and no smaller than 4 unless this is. At least 1.
    stop_when_converged : bool
        Whether to end the task when the model expects nothing more of any step and every neighbour
        of the best was measured, which leaves its trials to the scheduler's other tasks. Otherwise
        the search goes on with what is most promising.
    explorer : str
        What explores: "random", TVM's sampling of the design spaces, or "evolutionary".
    evolutionary : Mapping[str, Any] | None
        Options of TVM's ``EvolutionarySearch``, where that explores.
    without : Sequence[str]
        Parts of the search to switch off, to see what each is worth: "exploration", "descent",
        "model", "joint steps", "random points", "multi-start", "small batches" and "parallel
        annotation".

    Raises
    ------
    ValueError
        Names the argument that is out of its range.

    Examples
    --------
    .. code-block:: python

        from tvm.s_tir import meta_schedule as ms
        from tvm_droplet_ms import DropletStrategy

        database = ms.tune_tir(
            mod, target, work_dir, max_trials_global=300, strategy=DropletStrategy()
        )
    """

    def __init__(
        self,
        *,
        explore_trials: int = 8,
        num_starts: int = 8,
        descent_batch_size: int = 16,
        stop_when_converged: bool = False,
        explorer: str = "random",
        evolutionary: Mapping[str, Any] | None = None,
        without: Sequence[str] = (),
    ) -> None:
        """Constructor"""
        super().__init__()
        _check_at_least("explore_trials", explore_trials, 1)
        _check_at_least("num_starts", num_starts, 1)
        _check_at_least("descent_batch_size", descent_batch_size, 1)
        if explorer not in _EXPLORERS:
            raise ValueError(f"explorer is {explorer!r}, expected one of {', '.join(_EXPLORERS)}")
        if evolutionary and explorer != "evolutionary":
            raise ValueError(
                f"evolutionary is {dict(evolutionary)!r}, but explorer is {explorer!r} and nothing "
                "evolves; leave it out, or pass explorer='evolutionary'"
            )
        if not isinstance(stop_when_converged, bool | int):
            raise ValueError(
                f"stop_when_converged is {stop_when_converged!r}, expected True or False"
            )
        unknown = [part for part in without if part not in WITHOUT]
        if isinstance(without, str) or unknown:
            raise ValueError(
                f"without is {without!r}, expected a sequence of some of {', '.join(WITHOUT)}"
            )
        self._options = SearchOptions(
            explore_trials=int(explore_trials),
            num_starts=int(num_starts),
            descent_batch_size=int(descent_batch_size),
            stop_when_converged=bool(stop_when_converged),
            explorer=str(explorer),
            without=frozenset(without),
        )
        self._evolutionary = dict(evolutionary or {})
        self._evolution = _make_evolution(self._evolutionary)
        self._run: _Run | None = None

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        # TVM calls this several times on one object. The context itself is not kept: it holds this
        # object, and no collector would see the cycle.
        self._mod = context.mod
        self._target = context.target
        self._task = str(context.task_name)
        self._num_threads = int(context.num_threads)
        self._seed = int(context.rand_state)
        self._postprocs = list(context.space_generator.postprocs or [])
        self._run = None
        self._evolution._initialize_with_tune_context(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Begin a run; see ``SearchStrategy.pre_tuning``.

        Parameters
        ----------
        max_trials : int
            The most trials of this task.
        num_trials_per_iter : int
            The most trials of a batch.
        design_spaces : Sequence[Schedule]
            The design spaces of the task.
        database : Database | None
            Where earlier measurements of the task are found; None for an empty one.
        cost_model : CostModel | None
            What evolution selects with, where it explores; None for a random order.

        Raises
        ------
        ValueError
            If a run has begun already, or there is nothing to search.
        """
        if self._run is not None:
            raise ValueError(
                f"{self._task}: pre_tuning was called twice; call post_tuning in between"
            )
        if not design_spaces:
            raise ValueError(
                f"{self._task}: design_spaces is empty, expected at least one schedule; "
                "the space generator made none for this module"
            )
        _check_at_least("num_trials_per_iter", num_trials_per_iter, 1)
        traces = [space.trace for space in design_spaces]
        if not any(Sketch.of(trace).decisions for trace in traces):
            logger.warning(
                "%s: nothing to search: no design space samples a decision; each is measured once",
                self._task,
            )
        generator = random.Random(self._seed)
        replayer = Replayer(self._mod, self._postprocs, generator)
        history = History(self._mod, self._target)
        if database is not None:
            history.load(database, replayer)
        if len(history) or history.ignored:
            logger.info(
                "%s: %d modules measured before; records ignored: %s",
                self._task,
                len(history),
                ", ".join(f"{count} of {why}" for why, count in history.ignored.items()) or "none",
            )
        without = self._options.without
        explorer: Explorer = RandomExplorer(replayer, design_spaces, history)
        if self._options.explorer == "evolutionary":
            model = RandomModel() if cost_model is None else cost_model
            explorer = EvolutionaryExplorer(self._evolution, design_spaces, history, model)
        budget = Budget(int(max_trials), int(num_trials_per_iter))
        search = DropletSearch(
            options=self._options,
            budget=budget,
            replayer=replayer,
            history=history,
            explorer=explorer,
            descent=ModelDescent(
                replayer,
                history,
                traces,
                generator,
                num_starts=1 if "multi-start" in without else self._options.num_starts,
                parallel_limit=(
                    0 if "parallel annotation" in without else largest_parallel_extent(traces)
                ),
                without=without,
            ),
            journal=Journal(self._task, history, replayer.dropped),
            design_spaces=traces,
        )
        self._run = _Run(search, search.batches(), budget, explorer)

    def post_tuning(self) -> None:
        """End the run and drop its state.

        Raises
        ------
        ValueError
            If no run has begun.
        """
        run = self._running("post_tuning")
        run.search.conclude()
        run.explorer.leave()
        self._run = None

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next batch to measure.

        Returns
        -------
        measure_candidates : list[MeasureCandidate] | None
            At most ``num_trials_per_iter``, none of them empty; None when the trials are spent or
            the search has ended, and ever after.

        Raises
        ------
        ValueError
            If no run has begun, or the results of the last batch have not been told.
        """
        run = self._running("generate_measure_candidates")
        if run.pending is not None:
            raise ValueError(
                f"{self._task}: generate_measure_candidates was called before the results of the "
                f"last {len(run.pending)} candidates; call notify_runner_results first"
            )
        if run.finished or run.budget.room <= 0:
            return None
        with Profiler.timeit("Droplet/Generate"):
            run.pending = next(run.batches, None)
            if run.pending is None:
                run.finished = True
                return None
            return [candidate.measure_candidate() for candidate in run.pending]

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Take the results of the last batch.

        Parameters
        ----------
        measure_candidates : Sequence[MeasureCandidate]
            The candidates of the last batch, in its order.
        results : Sequence[RunnerResult]
            One for each.

        Raises
        ------
        ValueError
            If no run has begun, or the results are not those of the last batch.
        """
        run = self._running("notify_runner_results")
        pending = run.pending or []
        if not len(pending) == len(measure_candidates) == len(results):
            raise ValueError(
                f"{self._task}: notify_runner_results was called with {len(measure_candidates)} "
                f"candidates and {len(results)} results, expected {len(pending)} of each"
            )
        if pending:
            with Profiler.timeit("Droplet/Notify"):
                run.search.tell(pending, list(results))
        run.pending = None

    def clone(self) -> SearchStrategy:
        """A strategy of the same configuration, without state."""
        return DropletStrategy(**asdict(self._options), evolutionary=self._evolutionary)

    def _running(self, caller: str) -> _Run:
        if self._run is None:
            raise ValueError(f"{caller} was called outside a run; call pre_tuning first")
        return self._run


def _check_at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, expected an integer of at least {least}")


def _make_evolution(options: Mapping[str, Any]) -> EvolutionarySearch:
    try:
        return EvolutionarySearch(**options)
    except TypeError as error:
        raise ValueError(
            f"evolutionary is {dict(options)!r}, expected options of TVM's EvolutionarySearch: "
            f"{error}"
        ) from error


@register_global_func("tvm_droplet_ms.DropletStrategy")
def _make(options: Mapping[str, Any]) -> SearchStrategy:
    """Make a strategy by name, from a map of its options: the FFI passes no keywords."""
    return DropletStrategy(**{str(name): value for name, value in options.items()})
