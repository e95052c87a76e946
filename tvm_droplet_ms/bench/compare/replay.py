# SPDX-License-Identifier: Apache-2.0
"""The strategies of a comparison, and one run of each on a space, whose times are recorded."""

import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import threadpoolctl

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy
from tvm.target import Target

from ...cost_model import PretrainedModel, TransferModel
from ...cost_model.draft import SymbolDraft
from ...design_space.native_vectors import vectors_as_sampled
from ...display.phases import quiet_tvm
from ...measure import fast_start
from ...search_strategy import DropletStrategy
from ..definition import definition_of
from ..space import Space
from ..table import ReplayTable
from .results import CompareError, RunResult, RunSettings, file_digest

Search = tuple[SearchStrategy, Literal["xgb", "random"] | CostModel]
"""Arguments ``strategy`` and ``cost_model`` of ``ms.tune_tir``.

The cost model is "random", which learns nothing, for a strategy that uses no cost model. So only
the strategies that use a model pay for its training.
"""

Learned = Mapping[str, Path]
"""The prior and draft files learned from all other spaces, by kind: "prior" and "draft"."""


@dataclass(frozen=True)
class Experiment:
    """One strategy of a comparison, and the kinds of learned files that it starts from."""

    make: Callable[[Learned, int], Search]
    begins_with: tuple[str, ...] = ()


def _prior(learned: Learned) -> TransferModel | None:
    """A new model from the prior file; None without a prior."""
    return TransferModel(PretrainedModel.load(learned["prior"])) if "prior" in learned else None


def _droplet(learned: Learned, trials: int) -> Search:
    """``DropletStrategy`` with the learned files. The shipped files were trained on the spaces."""
    draft = SymbolDraft.from_file(learned["draft"]) if "draft" in learned else None
    strategy = DropletStrategy(prior=_prior(learned), draft=draft, explorer="random", stop=None)
    return strategy, "random"


def _as_published(learned: Learned, trials: int) -> Search:
    """The published search: half of the trials by evolution, then coordinate descent."""
    return DropletStrategy.published(max(1, trials // 2)), "xgb"


def _evolutionary(learned: Learned, trials: int) -> Search:
    """TVM's evolutionary search with its own cost model, or with a pretrained one."""
    return SearchStrategy.create("evolutionary"), _prior(learned) or "xgb"


def _replay_trace(learned: Learned, trials: int) -> Search:
    return SearchStrategy.create("replay-trace"), "random"


EXPERIMENTS: Mapping[str, Experiment] = {
    "droplet with prior and draft": Experiment(_droplet, ("prior", "draft")),
    "droplet": Experiment(_droplet, ("prior",)),
    "droplet with draft": Experiment(_droplet, ("draft",)),
    "droplet without prior": Experiment(_droplet),
    "droplet as published": Experiment(_as_published),
    "evolutionary": Experiment(_evolutionary),
    "evolutionary with prior": Experiment(_evolutionary, ("prior",)),
    "replay-trace": Experiment(_replay_trace),
}
"""All strategies that can be compared."""

STRATEGIES = tuple(EXPERIMENTS)
"""Names of all strategies."""


def find_experiment(name: str) -> Experiment:
    """Find a strategy by its name. Raises ``CompareError`` if no strategy has that name."""
    if name not in EXPERIMENTS:
        raise CompareError(f"{name!r} is no strategy, expected one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def replay(space_file: Path, settings: RunSettings, learned: Learned = {}) -> RunResult:
    """Run a strategy on a space, in this process.

    Seeds Python's and NumPy's global generators: below 100 samples, TVM's ``XGBModel`` draws its
    predictions from NumPy's. Raises ``CompareError`` if the file has changed since the settings
    were made, or if the run measured no candidate or more than ``settings.trials``. Exceptions of
    the strategy, the space and TVM pass through.
    """
    if file_digest(space_file) != settings.space_digest:
        raise CompareError(f"{space_file} has changed since the comparison began; start it again")
    fast_start()
    table = ReplayTable(load_space(space_file), noisy=settings.noisy, seed=settings.seed)
    definition = definition_of(table.space)
    strategy, cost_model = find_experiment(settings.strategy).make(learned, settings.trials)
    random.seed(settings.seed)
    np.random.seed(settings.seed)
    with (
        tempfile.TemporaryDirectory() as work_dir,
        threadpoolctl.threadpool_limits(1),
        quiet_tvm(),
        vectors_as_sampled(),
    ):
        ms.tune_tir(
            definition.mod,
            Target(dict(table.space.target)),
            work_dir,
            settings.trials,
            num_trials_per_iter=settings.num_trials_per_iter,
            database=ms.database.MemoryDatabase(),
            cost_model=cost_model,
            space=definition.make_space(),
            strategy=strategy,
            num_tuning_cores=1,
            seed=settings.seed,
            **table.measure(),
        )
    if not 1 <= len(table.trials) <= settings.trials:
        raise CompareError(
            f"{settings.strategy} measured {len(table.trials)} candidates on {settings.space}, "
            f"expected 1 to {settings.trials}"
        )
    return RunResult(settings, tuple(table.trials))


@lru_cache(maxsize=32)
def load_space(path: Path) -> Space:
    """Read a space, once per process."""
    return Space.load(path)
