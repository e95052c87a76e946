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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tvm_ffi import register_global_func

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import RandomModel
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    EvolutionarySearch,
    MeasureCandidate,
    SearchStrategy,
)

from .belief import Belief
from .candidates import Replayer
from .decisions import Sketch, largest_parallel_extent
from .diversity import BatchSelection
from .explorer import EvolutionaryExplorer, Explorer, RandomExplorer
from .history import History
from .journal import Journal
from .lifecycle import Start, StrategyLifecycle, Task, TaskSearch, check_at_least
from .log import logger
from .model_descent import ModelDescent
from .model_explorers import AnnealingExplorer, InformedExplorer
from .places import Places
from .search import WITHOUT, Batch, DropletSearch, SearchOptions

_EXPLORERS = ("random", "evolutionary", "annealing")

_CHAINS, _STEPS = 128, 4
"""The chains of annealing, as many as AutoTVM's, and their moves for a batch."""

_DRAWN = 256
"""Of how many random schedules a cost model chooses what to explore."""


class _Run:
    """A search, as the lifecycle of a strategy drives it."""

    def __init__(self, search: DropletSearch, explorer: Explorer) -> None:
        self._search = search
        self._explorer = explorer
        self._batches = search.batches()
        self._batch: Batch = []

    def propose(self) -> list[MeasureCandidate]:
        self._batch = next(self._batches, [])
        return [candidate.measure_candidate() for candidate in self._batch]

    def tell(self, _: Sequence[MeasureCandidate], results: Sequence[RunnerResult]) -> None:
        self._search.tell(self._batch, results)

    def end(self) -> None:
        self._search.conclude()
        self._explorer.leave()


@derived_object
class DropletStrategy(StrategyLifecycle):
    """Explore briefly, then descend coordinate by coordinate on a model of what was measured.

    A MetaSchedule search strategy after "Explore as a Storm, Exploit as a Raindrop" (arXiv
    2406.20037), inside the trial budget and over a trace's own sampled decisions: tile sizes,
    categorical choices, compute locations and the extent of the parallel loop. Of the steps from
    the best schedule, a Gaussian process tells which are worth measuring.

    Parameters
    ----------
    explore_trials : int
        How many trials of a task to explore for before the descent, the records of its database
        included. At least 1.
    descent_batch_size : int
        The most candidates of a descent's batch. A batch is no larger than an eighth of what was
        measured, and no smaller than 4 unless this is. At least 1.
    stop_when_converged : bool
        Whether to end the task when the model expects nothing more of any step and every neighbour
        of the best was measured, which leaves its trials to the scheduler's other tasks. Otherwise
        the search goes on with what is most promising.
    explorer : str
        What explores: "random", TVM's sampling of the design spaces, of which a cost model that
        knows something chooses; "evolutionary"; or "annealing" on the cost model's predictions.
    evolutionary : Mapping[str, Any] | None
        Options of TVM's ``EvolutionarySearch``, where that explores.
    diversity : float
        Where a cost model chooses what to explore: how much of the best throughput one more value
        of a decision is worth to a batch. At least 0.
    epsilon : float
        The share of such a batch that is random, from 0 to 1. What the model thinks little of tells
        how far it can be trusted.
    without : Sequence[str]
        Parts of the search to switch off, to see what each is worth: "exploration", "descent",
        "model", "joint steps", "random points", "small batches", "parallel annotation" and "cost
        model".
    dropped : Counter[str] | None
        Where to count the proposals that were not in the space, by the postprocessor or the error
        that dropped them, for all tasks and clones together; None to count each task's for its log.
        What TVM's evolution drops where it explores is not counted: it does not tell.

    Notes
    -----
    A cost model that knows something before the first measurement, as ``TransferModel`` does,
    chooses what to explore and is what the Gaussian process corrects. TVM's own answer at random
    until they have samples of the run, and are not asked again then.

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

    _scope = "Droplet"

    def __init__(
        self,
        *,
        explore_trials: int = 8,
        descent_batch_size: int = 16,
        stop_when_converged: bool = False,
        explorer: str = "random",
        evolutionary: Mapping[str, Any] | None = None,
        diversity: float = 0.0,
        epsilon: float = 0.5,
        without: Sequence[str] = (),
        dropped: Counter[str] | None = None,
    ) -> None:
        """Constructor"""
        super().__init__()
        check_at_least("explore_trials", explore_trials, 1)
        check_at_least("descent_batch_size", descent_batch_size, 1)
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
        if not diversity >= 0.0:
            raise ValueError(f"diversity is {diversity!r}, expected at least 0")
        if not 0.0 <= epsilon <= 1.0:
            raise ValueError(f"epsilon is {epsilon!r}, expected a share from 0 to 1")
        self._options = SearchOptions(
            explore_trials=int(explore_trials),
            descent_batch_size=int(descent_batch_size),
            stop_when_converged=bool(stop_when_converged),
            explorer=str(explorer),
            diversity=float(diversity),
            epsilon=float(epsilon),
            without=frozenset(without),
        )
        self._dropped = dropped
        self._evolutionary = dict(evolutionary or {})
        self._evolution = (
            _make_evolution(self._evolutionary) if explorer == "evolutionary" else None
        )

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        super()._initialize_with_tune_context(context)
        if self._evolution is not None:
            self._evolution._initialize_with_tune_context(context)

    def _begin(self, task: Task, start: Start) -> TaskSearch:
        traces = [space.trace for space in start.design_spaces]
        if not any(Sketch.of(trace).decisions for trace in traces):
            logger.warning(
                "%s: nothing to search: no design space samples a decision; each is measured once",
                task.name,
            )
        generator = random.Random(task.seed)
        replayer = Replayer(task.mod, task.postprocs, generator, self._dropped)
        history = History(task.mod, task.target)
        if start.database is not None:
            history.load(start.database, replayer)
        if len(history) or history.ignored:
            logger.info(
                "%s: %d modules measured before; records ignored: %s",
                task.name,
                len(history),
                ", ".join(f"{count} of {why}" for why, count in history.ignored.items()) or "none",
            )
        without = self._options.without
        places = Places(traces)
        belief = self._belief(task, start, history, replayer.dropped)
        sampling = RandomExplorer(replayer, start.design_spaces, history)
        explorer: Explorer = sampling
        selection = BatchSelection(self._options.diversity, self._options.epsilon)
        model = RandomModel() if start.cost_model is None else start.cost_model
        if self._evolution is not None:
            explorer = EvolutionaryExplorer(self._evolution, start.design_spaces, history, model)
        elif self._options.explorer == "annealing":
            asked = Belief(model, task.mod, task.target, task.num_threads)
            explorer = AnnealingExplorer(
                sampling,
                asked,
                places,
                selection,
                replayer,
                history,
                generator,
                chains=_CHAINS,
                steps=_STEPS,
            )
        elif belief is not None:
            explorer = InformedExplorer(sampling, belief, places, selection, _DRAWN)
        search = DropletSearch(
            options=self._options,
            budget=start.budget,
            replayer=replayer,
            history=history,
            explorer=explorer,
            descent=ModelDescent(
                replayer,
                history,
                places,
                generator,
                parallel_limit=(
                    0 if "parallel annotation" in without else largest_parallel_extent(traces)
                ),
                without=without,
                belief=belief,
            ),
            journal=Journal(task.name, history, replayer.dropped),
            design_spaces=traces,
        )
        return _Run(search, explorer)

    def _belief(
        self, task: Task, start: Start, history: History, dropped: Counter[str]
    ) -> Belief | None:
        """What the cost model expects; None where it knows nothing."""
        if start.cost_model is None or "cost model" in self._options.without:
            return None
        belief = Belief(start.cost_model, task.mod, task.target, task.num_threads)
        # With a generator of its own: whoever passes no such model has the same search as ever.
        probe = Replayer(task.mod, task.postprocs, random.Random(task.seed), dropped)
        drawn = RandomExplorer(probe, start.design_spaces, history).ask(2)
        return belief if belief.is_informed(drawn) else None

    def clone(self) -> SearchStrategy:
        """A strategy of the same configuration, without state."""
        return DropletStrategy(
            **asdict(self._options), evolutionary=self._evolutionary, dropped=self._dropped
        )


def _make_evolution(options: Mapping[str, Any]) -> EvolutionarySearch:
    try:
        return EvolutionarySearch(**options)
    except TypeError as error:
        raise ValueError(
            f"evolutionary is {dict(options)!r}, expected options of TVM's EvolutionarySearch: "
            f"{error}"
        ) from error


@register_global_func("tvm_droplet_ms.DropletStrategy", override=True)
def _make(options: Mapping[str, Any]) -> SearchStrategy:
    """Make a strategy by name, from a map of its options: the FFI passes no keywords."""
    return DropletStrategy(**{str(name): value for name, value in options.items()})
