# SPDX-License-Identifier: Apache-2.0
"""DropletStrategy: the object that TVM calls."""

import os
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tvm_ffi import get_global_func, register_global_func

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, SearchStrategy

from ..design_space.dot_products.dot_intrinsics import register_dots
from ..design_space.native_vectors import with_native_vectors
from ..design_space.screening.executed_work import WorkLimit
from ..design_space.sound_space import sound_schedules
from .candidates import ScreenedReplayer, TaskHistory
from .descents.surrogate import SurrogateDescent, growing_batch, least_batch
from .design_spaces import EncodedSpaces
from .drafting import DraftLike, LaunchMask, TaskDraft, check_draft, find_draft
from .explorers.base import Explorer, SearchContext
from .explorers.evolutionary import EvolutionaryExplorer
from .explorers.random_sampling import RandomExplorer
from .explorers.seeded import KnownExplorer
from .log import SearchLogger
from .logger import logger
from .prior import CostModelPrior, check_prior, find_prior
from .published.decisions import Prober, largest_parallel_extent
from .published.lifecycle import PreTuningArgs, StrategyLifecycle, Task, check_at_least
from .published.strategy import DropletSearch
from .search import TaskSearch
from .stopping import Stop, StopRule, check_stop

EXPLORERS: Mapping[str, Callable[[], Explorer]] = {
    "known": KnownExplorer,
    "random": RandomExplorer,
    "evolutionary": EvolutionaryExplorer,
}
"""Explorers with default options, by name."""

EXPLORE_TRIALS = 8
"""The default of ``explore_trials``. ``DropletStrategy.published()`` explores for the paper's 300
trials. What this and other numbers of the search gain: ``docs/results/choices.md``."""

FIND_ROOFLINE = "tvm_droplet_ms.roofline"
"""The global function that returns the roofline of a workload for a target in seconds, or None.
This package registers it. Without it, forecasts ignore the roofline."""


@derived_object
class DropletStrategy(StrategyLifecycle):
    """Explore a few schedules that a pretrained cost model picks, then descend from the best.

    A MetaSchedule search strategy after "Explore as a Storm, Exploit as a Raindrop" (arXiv
    2406.20037). Within the trial budget, it searches over a trace's sampled decisions: tile sizes,
    categorical choices, compute locations and the extent of the parallel loop. A Gaussian process,
    fitted to all measurements, chooses the schedules to measure. ``DropletStrategy.published()`` is
    the published search, which changes one decision of the best schedule at a time.

    Parameters
    ----------
    explore_trials : int | None
        Number of exploration trials of a task before the descent, including the records of its
        database. At least 1. None for 8.
    stop : Literal["auto"] | float | None
        The search forecasts the gain of the next 32 trials, as a share of the best time. The task
        ends when the forecast is below this value, and leaves its remaining trials to the
        scheduler's other tasks. ``"auto"`` for 0.008. None spends all trials. Exploration never
        ends early.
    explorer : str | Explorer
        ``"random"``: TVM's sampling of the design spaces, from which the prior picks. ``"known"``:
        first the best schedules of the nearest kernels that the package knows, then ``"random"``.
        ``"evolutionary"``: TVM's evolutionary search. Or an explorer object with options, such as
        ``RandomExplorer(pool_size=64)``.
    prior : str | os.PathLike[str] | CostModel | None
        A cost model that predicts before any measurement, independent of the cost model that TVM
        trains beside the search. ``"auto"``: the model that comes with the package, if there is one
        for the kind of the target. Otherwise the path of a model file, a cost model such as a
        ``TransferModel``, or None. The strategy updates the prior with the measurements. A file is
        loaded anew for each task; all tasks share a cost model object.
    draft : Literal["auto"] | Draft | None
        Scores schedules by their decisions alone. Most of the random schedules that are measured,
        or that the prior picks from, are then the best scored among thousands. ``"auto"``: the
        draft that comes with the package for the target, of ``tvm_droplet_ms.cost_model.draft``:
        ``SymbolDraft`` for CPUs, ``GpuLimits`` for GPUs. Otherwise an object with ``begin``, or
        None.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names the argument.

    Examples
    --------
    .. code-block:: python

        from tvm.s_tir import meta_schedule as ms
        from tvm_droplet_ms import DropletStrategy

        database = ms.tune_tir(
            mod, target, work_dir, max_trials_global=64, strategy=DropletStrategy()
        )
    """

    def __init__(
        self,
        *,
        explore_trials: int | None = None,
        stop: Stop = "auto",
        explorer: str | Explorer = "known",
        prior: str | os.PathLike[str] | CostModel | None = "auto",
        draft: DraftLike = "auto",
    ) -> None:
        """Constructor"""
        super().__init__()
        register_dots()  # Records that name them may be read before the search.
        if explore_trials is None:
            explore_trials = EXPLORE_TRIALS
        check_at_least("explore_trials", explore_trials, 1)
        check_stop(stop)
        check_prior(prior)
        check_draft(draft)
        self._explore_trials = int(explore_trials)
        self._stop: Stop = stop
        self._explorer = _make_explorer(explorer)
        self._prior = prior
        self._draft = draft

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        super()._initialize_with_tune_context(context)
        self._explorer.initialize_with_tune_context(context)

    def _begin(self, task: Task, args: PreTuningArgs) -> TaskSearch:
        schedules = sound_schedules(args.design_spaces, task.mod, task.target, task.seed)
        traces = [schedule.trace for schedule in schedules]
        generator = random.Random(task.seed)
        limit = WorkLimit(task.mod, (schedule.mod for schedule in schedules))
        postprocs = with_native_vectors(task.postprocs, task.target)
        spaces = EncodedSpaces(traces)
        mask = LaunchMask(spaces)
        checks = [mask, *postprocs, limit]
        replayer = ScreenedReplayer(task.mod, checks, generator, task.num_threads)
        draft = mask.draft = self._make_draft(task, spaces, replayer)
        context = SearchContext(
            replayer=replayer,
            history=_load_history(task, args, replayer),
            schedules=list(schedules),
            spaces=spaces,
            generator=generator,
            prior=self._make_prior(task),
            cost_model=args.cost_model,
            seed=task.seed,
            draft=draft,
        )
        if not any(sketch.decisions for sketch in context.spaces.sketches):
            logger.warning(
                "%s: nothing to search: no design space samples a decision; each is measured once",
                task.name,
            )
        rule = StopRule(self._stop, _roofline(task))
        return TaskSearch(
            name=task.name,
            history=context.history,
            context=context,
            budget=args.budget,
            exploration=self._explorer.begin(context),
            descent=SurrogateDescent(
                context,
                Prober(replayer, largest_parallel_extent(traces)),
                partial(growing_batch, context.history, least_batch(task), args.budget),
                rule,
            ),
            log=SearchLogger(task.name, context.history, replayer.dropped, rule),
            explore_trials=self._explore_trials,
            rule=rule,
        )

    def _make_prior(self, task: Task) -> CostModelPrior | None:
        model = find_prior(self._prior, task.target)
        arguments = (task.mod, task.target, task.num_threads)
        return None if model is None else CostModelPrior(model, *arguments)

    def _make_draft(
        self, task: Task, spaces: EncodedSpaces, replayer: ScreenedReplayer
    ) -> TaskDraft | None:
        draft = find_draft(self._draft, task.target)
        return None if draft is None else draft.begin(spaces, replayer)

    @staticmethod
    def published(
        explore_trials: int | None = None,
        *,
        descent_batch_size: int = 16,
        evolution: EvolutionarySearch | None = None,
    ) -> SearchStrategy:
        """The published search alone, as it is offered to TVM; see ``published.strategy``.

        Like TVM's own searches, it has no prior and no draft. Unlike this strategy, it does not
        drop schedules that do not compute their workload.

        Parameters
        ----------
        explore_trials : int | None
            Number of trials of a task with TVM's evolutionary search before the descent, including
            the records of its database. At least 1. None for the paper's 300, or half of the task's
            trials if that is less.
        descent_batch_size : int
            The maximum number of candidates in a batch of the descent. At least 1.
        evolution : EvolutionarySearch | None
            The search that explores; None for one with TVM's defaults.
        """
        return DropletSearch(
            explore_trials=explore_trials,
            descent_batch_size=descent_batch_size,
            evolution=evolution,
        )

    def clone(self) -> SearchStrategy:
        """A strategy of the same configuration, without state."""
        return DropletStrategy(
            explore_trials=self._explore_trials,
            stop=self._stop,
            explorer=self._explorer,
            prior=self._prior,
            draft=self._draft,
        )


# The class that the decorator makes lacks the static methods of the decorated class.
setattr(DropletStrategy, "published", DropletStrategy._cls.published)


def _roofline(task: Task) -> float | None:
    """The roofline of a task on this machine in seconds; None if it is unknown."""
    find = get_global_func(FIND_ROOFLINE, allow_missing=True)
    return None if find is None else find(task.mod, task.target)


def _make_explorer(explorer: str | Explorer) -> Explorer:
    if isinstance(explorer, Explorer):
        return explorer.clone()
    if explorer not in EXPLORERS:
        raise ValueError(
            f"explorer is {explorer!r}, expected one of {', '.join(EXPLORERS)}, or an Explorer"
        )
    return EXPLORERS[explorer]()


def _load_history(task: Task, args: PreTuningArgs, replayer: ScreenedReplayer) -> TaskHistory:
    """The measurements of the task in the database."""
    history = TaskHistory(task.mod, task.target)
    if args.database is not None:
        history.load(args.database, replayer)
    if len(history) or history.ignored:
        logger.info(
            "%s: %d modules measured before; records ignored: %s",
            task.name,
            len(history),
            ", ".join(f"{count} of {why}" for why, count in history.ignored.items()) or "none",
        )
    return history


@register_global_func("tvm_droplet_ms.DropletStrategy", override=True)
def _make(options: Mapping[str, Any] | None = None) -> SearchStrategy:
    """Make a strategy from a map of its options, because the FFI passes no keyword arguments.

    The map names an explorer by a string.
    """
    return DropletStrategy(**{str(name): value for name, value in (options or {}).items()})
