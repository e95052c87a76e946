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
"""Search strategies that a comparison knows by name, each with its cost model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy

from ...autotvm import AnnealingExplorer
from ...cost_model import PretrainedModel, TransferModel
from ...cost_model.boosted_trees import Trees
from ...draft import SymbolDraft
from ...draft.draft_file import read_draft, shipped_draft
from ...search_strategy import DropletStrategy
from ..baselines.strategy import AskTellStrategy
from .both import both_files
from .results import CompareError

Search = tuple[SearchStrategy, Literal["xgb", "random"] | CostModel]
"""Arguments ``strategy`` and ``cost_model`` of ``ms.tune_tir``.

The cost model is "random", which learns nothing, for a strategy that does not use one: training a
model is charged to the strategies that use it.
"""

Make = Callable[[Path | None, int], Search]
"""Makes a search of the file of a trained model, where there is one, and the number of trials."""


@dataclass(frozen=True)
class Experiment:
    """One strategy of a comparison.

    Parameters
    ----------
    make : Make
        Makes a new search for each run.
    begins_with : str | None
        What it begins with, learned from all other spaces: one of ``transfer.LEARNERS``, or None.
    """

    make: Make
    begins_with: str | None = None


class UnknownStrategyError(CompareError):
    """No strategy has that name."""


def _droplet(**options: Any) -> Make:
    """``DropletStrategy`` with these options, its prior from the model file."""

    def make(model: Path | None, trials: int) -> Search:
        prior = None if model is None else TransferModel(PretrainedModel.load(model))
        # Without a prior, an explorer asks the model that TVM trains.
        asks_tvm = prior is None and "explorer" in options
        # The draft that comes with the package has learned from the spaces to compare on.
        strategy = DropletStrategy(**options, prior=prior, draft=None)
        return strategy, "xgb" if asks_tvm else "random"

    return make


@dataclass(frozen=True)
class _SignedTrees:
    """The scores of trees times a sign."""

    trees: Trees
    sign: float

    def predict(self, features: np.ndarray) -> np.ndarray:
        return self.sign * self.trees.predict(features)


def _drafted(sign: float) -> Make:
    """``DropletStrategy`` without a prior, with a draft or with the opposite of one."""

    def make(model: Path | None, trials: int) -> Search:
        trees = shipped_draft() if model is None else read_draft(model)
        draft = SymbolDraft(_SignedTrees(trees, sign))
        return DropletStrategy(prior=None, draft=draft), "random"

    return make


def _with_both(model: Path | None, trials: int) -> Search:
    """``DropletStrategy()``, with the prior and the draft of one file."""
    if model is None:
        return DropletStrategy(), "random"
    with both_files(model) as (prior, draft):
        return (
            DropletStrategy(
                prior=TransferModel(PretrainedModel.load(prior)),
                draft=SymbolDraft.from_file(draft),
            ),
            "random",
        )


def _as_published(model: Path | None, trials: int) -> Search:
    """The published search: half of the trials by evolution, then coordinate descent."""
    strategy = DropletStrategy(
        explore_trials=max(1, trials // 2),
        explorer="evolutionary",
        descent="coordinate",
        prior=None,
        draft=None,
    )
    return strategy, "xgb"


def _evolutionary(model: Path | None, trials: int) -> Search:
    """TVM's evolutionary search with its own cost model, or with a pretrained one."""
    cost_model = "xgb" if model is None else TransferModel(PretrainedModel.load(model))
    return SearchStrategy.create("evolutionary"), cost_model


def _replay_trace(model: Path | None, trials: int) -> Search:
    return SearchStrategy.create("replay-trace"), "random"


def _ask_tell(name: str) -> Make:
    return lambda model, trials: (AskTellStrategy(name), "random")


ANNEALING_STEPS = 4
"""Moves of each annealing chain for a batch, each a replay and a prediction; AutoTVM makes up to
500, which would take minutes for a batch here."""

EXPERIMENTS: Mapping[str, Experiment] = {
    "droplet with prior and draft": Experiment(_with_both, "prior and draft"),
    "droplet": Experiment(_droplet(), "prior"),
    "droplet without prior": Experiment(_droplet()),
    "droplet with draft": Experiment(_drafted(sign=1.0), "draft"),
    "droplet with inverted draft": Experiment(_drafted(sign=-1.0), "draft"),
    "droplet evolutionary": Experiment(_droplet(explorer="evolutionary"), "prior"),
    "droplet annealing": Experiment(
        _droplet(explorer=AnnealingExplorer(steps=ANNEALING_STEPS)), "prior"
    ),
    "droplet as published": Experiment(_as_published),
    "evolutionary": Experiment(_evolutionary),
    "evolutionary with prior": Experiment(_evolutionary, "prior"),
    "replay-trace": Experiment(_replay_trace),
    "random": Experiment(_ask_tell("random")),
    "tpe": Experiment(_ask_tell("tpe")),
    "local-search": Experiment(_ask_tell("local-search")),
}
"""All strategies that can be compared."""

STRATEGIES = tuple(EXPERIMENTS)
"""Names of all strategies."""


def find_experiment(name: str) -> Experiment:
    """Find a strategy by its name.

    Raises
    ------
    UnknownStrategyError
        If no strategy has that name.
    """
    if name not in EXPERIMENTS:
        raise UnknownStrategyError(
            f"{name!r} is no strategy, expected one of {', '.join(EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


def make_search(name: str, trials: int, model: Path | None = None) -> Search:
    """Make the strategy and the cost model of a run.

    Parameters
    ----------
    name : str
        One of ``STRATEGIES``.
    trials : int
        Trials of the whole run.
    model : Path | None
        File of the model that a strategy with a prior starts with; None for an untrained one.

    Raises
    ------
    UnknownStrategyError
        If no strategy has that name.
    ImportError
        If the strategy needs a package that is not installed.
    """
    return find_experiment(name).make(model, trials)
