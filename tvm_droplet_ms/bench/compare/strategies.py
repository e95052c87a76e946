# SPDX-License-Identifier: Apache-2.0
"""The named search strategies of a comparison, each with its cost model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy

from ...cost_model import PretrainedModel, TransferModel
from ...cost_model.draft import SymbolDraft
from ...search_strategy import DropletStrategy
from .results import CompareError

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
