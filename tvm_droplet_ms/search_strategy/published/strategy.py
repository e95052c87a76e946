# SPDX-License-Identifier: Apache-2.0
"""The published search as a strategy of MetaSchedule."""

import random

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, SearchStrategy

from .candidates import History, Replayer
from .decisions import DesignSpaces, Prober, largest_parallel_extent
from .evolution import Evolution
from .lifecycle import PreTuningArgs, StrategyLifecycle, Task, check_at_least
from .search import CoordinateDescent, Search

EXPLORE_TRIALS = 300
"""Number of exploration trials per task in the paper."""


@derived_object
class DropletSearch(StrategyLifecycle):
    """
    Droplet Search Strategy explores with evolutionary search, and continues from the best schedule
    by coordinate descent over the sampled decisions, within the trials of the task.

    After "Explore as a Storm, Exploit as a Raindrop" (Canesche et al., arXiv 2406.20037). It ends
    at a local optimum, and leaves its other trials to the scheduler's other tasks. The significance
    test needs several times: measure with a ``repeat`` of 3 or more in the ``EvaluatorConfig``. For
    candidates that were timed once, the lower time decides.

    It differs from the authors' code where their code would not work on traces:

    - A step changes one decision, by the least amount, in both directions. The authors step along
      all subsets of the axes, exponentially many in the number of decisions, about a dozen here.
    - A step on a tile moves a prime factor from one loop to another. The authors set each factor to
      a power of two; replay repairs a tile that does not multiply to the extent, so that many such
      steps lead to one program.
    - Compute locations, categorical choices and the parallel extent are decisions too, because
      evolutionary search changes them.
    - A batch has up to 16 candidates. If it has room, steps are lengthened up to 4 times, not up to
      the length of the longest axis: few decisions go further in one direction.
    - The descent continues from the fastest of a batch's significantly faster candidates. The
      authors compare candidates one after the other.

    Parameters
    ----------
    explore_trials : Optional[int]
        Number of exploration trials of a task before the descent, including the records of its
        database. At least 1. None for 300, or half of the task's trials if that is less.
    descent_batch_size : int
        The maximum number of candidates in a batch of the descent. At least 1.
    evolution : Optional[EvolutionarySearch]
        The search that explores. None for a search with default options.
    """

    def __init__(
        self,
        *,
        explore_trials: int | None = None,
        descent_batch_size: int = 16,
        evolution: EvolutionarySearch | None = None,
    ) -> None:
        """Constructor"""
        super().__init__()
        if explore_trials is not None:
            check_at_least("explore_trials", explore_trials, 1)
        check_at_least("descent_batch_size", descent_batch_size, 1)
        self._explore_trials = explore_trials
        self._descent_batch_size = descent_batch_size
        self._evolution = EvolutionarySearch() if evolution is None else evolution.clone()

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        super()._initialize_with_tune_context(context)
        self._evolution._initialize_with_tune_context(context)

    def _begin(self, task: Task, args: PreTuningArgs) -> Search:
        traces = [schedule.trace for schedule in args.design_spaces]
        replayer = Replayer(task.mod, task.postprocs, random.Random(task.seed))
        history = History(task.mod, task.target)
        if args.database is not None:
            history.load(args.database, replayer)
        model = args.cost_model
        if model is None:
            from tvm.s_tir.meta_schedule.cost_model import RandomModel

            model = RandomModel(seed=abs(task.seed))
        prober = Prober(replayer, largest_parallel_extent(traces))
        # Not ``self``: its run would hold it, and no collector would see the cycle.
        largest, budget = self._descent_batch_size, args.budget
        half = max(1, budget.max_trials // 2)
        return Search(
            name=task.name,
            history=history,
            budget=budget,
            exploration=Evolution(self._evolution, args.design_spaces, history, model),
            descent=CoordinateDescent(
                replayer, history, DesignSpaces(traces), prober, lambda: min(largest, budget.room)
            ),
            explore_trials=self._explore_trials or min(EXPLORE_TRIALS, half),
        )

    def clone(self) -> SearchStrategy:
        """A strategy of the same configuration, without state."""
        return DropletSearch(
            explore_trials=self._explore_trials,
            descent_batch_size=self._descent_batch_size,
            evolution=self._evolution,
        )
