# SPDX-License-Identifier: Apache-2.0
"""Search strategies that a comparison knows by name, each with its cost model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy

from ...cost_model import PretrainedModel, TransferModel
from ...draft import SymbolDraft
from ...search_strategy import DropletStrategy
from .results import CompareError

Search = tuple[SearchStrategy, Literal["xgb", "random"] | CostModel]
"""Arguments ``strategy`` and ``cost_model`` of ``ms.tune_tir``.

The cost model is "random", which learns nothing, for a strategy that does not use one: training a
model is charged to the strategies that use it.
"""

Learned = Mapping[str, Path]
"""Files of what was learned from all other spaces, by kind: "prior" and "draft"."""


@dataclass(frozen=True)
class Experiment:
    """One strategy of a comparison."""

    make: Callable[[Learned, int], Search]
    begins_with: tuple[str, ...] = ()


def _prior(learned: Learned) -> TransferModel | None:
    """A new model from the file of the prior; None without one."""
    return TransferModel(PretrainedModel.load(learned["prior"])) if "prior" in learned else None


def _droplet(learned: Learned, trials: int) -> Search:
    """``DropletStrategy`` with what was learned; what the package ships has seen the spaces."""
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
