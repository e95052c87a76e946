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
"""The strategies that a comparison knows by name, each with the cost model that it asks."""

from collections import Counter
from collections.abc import Container
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tvm.s_tir.meta_schedule.cost_model import CostModel, XGBModel
from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy

from ...cost_model import PretrainedModel, TransferModel
from ...search_strategy import DropletStrategy
from ...search_strategy.search import WITHOUT
from ..baselines.post_opt_strategy import PostOptStrategy
from ..baselines.strategy import AskTellStrategy
from .results import KINDS, CompareError

BASELINES = (
    "evolutionary",
    "replay-trace",
    "post-opt",
    "post-opt-mended",
    "random",
    "tpe",
    "annealing",
    "local-search",
    "mcts",
)
"""What ``DropletStrategy`` is compared with."""

STRATEGIES = ("droplet", *BASELINES)
"""All but the ablations."""

_POST_OPT = "post-opt"
_DROPLET = "droplet"
_WITHOUT = f"{_DROPLET} without "

_OPTIONS: dict[str, dict[str, Any]] = {
    _DROPLET: {},
    f"{_DROPLET} annealing": {"explorer": "annealing"},
    f"{_DROPLET} evolutionary": {"explorer": "evolutionary"},
    f"{_DROPLET} diverse": {"diversity": 0.02},
}
"""How ``DropletStrategy`` is configured."""

ABLATIONS = tuple(_WITHOUT + part for part in WITHOUT if part != "cost model")
"""``DropletStrategy`` with one part off, each; its cost model here knows nothing anyway."""

NAMES = (*STRATEGIES, *ABLATIONS, *KINDS)
"""All strategies."""

_TVM = ("evolutionary", "replay-trace")
_LEARNING = ("droplet", *ABLATIONS, "evolutionary", "post-opt", "post-opt-mended")


LEAVES_SPACE = ("post-opt",)
"""Strategies whose candidates may lie outside of MetaSchedule's space, and then fail on a table."""


class Search(NamedTuple):
    """What to give ``ms.tune_tir``.

    Attributes
    ----------
    strategy : SearchStrategy
        The strategy.
    cost_model : Literal["xgb", "random"] | CostModel
        TVM's XGBoost model; or one that knows other spaces; or, for a strategy that asks none, the
        model that learns nothing: so that training a model is charged to those who use it.
    dropped : Counter[str] | None
        How often ``DropletStrategy`` or "post-opt" chose what is not in the space, by reason,
        counted while it runs; None for the others, which do not tell.
    """

    strategy: SearchStrategy
    cost_model: Literal["xgb", "random"] | CostModel
    dropped: Counter[str] | None


class UnknownStrategyError(CompareError):
    """No strategy has that name."""


def make_strategy(
    name: str, trials: int, modules: Container[int] | None = None, model: Path | None = None
) -> Search:
    """Make a strategy.

    Parameters
    ----------
    name : str
        One of ``NAMES``.
    trials : int
        The measurements of the whole run; "post-opt" explores with half of them.
    modules : Container[int] | None
        The structural hashes of the modules that can be measured; None for all. Only "post-opt"
        asks: its candidates can lie outside a space that is closed to all others.
    model : Path | None
        The file of the cost model of one of ``KINDS``; None for one that knows nothing.

    Raises
    ------
    UnknownStrategyError
        If no strategy has that name.
    ImportError
        If the strategy needs a package that is not installed.
    """
    if name not in NAMES:
        raise UnknownStrategyError(f"{name!r} is no strategy, expected one of {', '.join(NAMES)}")
    cost_model: Literal["xgb", "random"] | CostModel = "xgb" if name in _LEARNING else "random"
    if name in KINDS:
        cost_model = _knowing(KINDS[name], model)
        name = name.removesuffix(f" with {KINDS[name]}")
    dropped = Counter[str]() if name.startswith((_POST_OPT, _DROPLET)) else None
    return Search(_make(name, trials, modules, dropped), cost_model, dropped)


def _knowing(kind: str, model: Path | None) -> CostModel:
    """The cost model of a file; without one, such as it is before it has learned."""
    if kind != "xgb transfer":
        pretrained_model = None if model is None else PretrainedModel.load(model)
        return TransferModel(pretrained_model, objective="rank" if "rank" in kind else "regression")
    # Its warm-up is what would keep it from saying what it knows.
    own = XGBModel(num_warmup_samples=0, num_tuning_cores=1)
    if model is not None:
        own.load(str(model))
    return own


def _make(
    name: str, trials: int, modules: Container[int] | None, dropped: Counter[str] | None
) -> SearchStrategy:
    if name in _TVM:
        return SearchStrategy.create(name)
    if name in _OPTIONS:
        return DropletStrategy(**_OPTIONS[name], dropped=dropped)
    if name.startswith(_WITHOUT):
        return DropletStrategy(without=(name.removeprefix(_WITHOUT),), dropped=dropped)
    if name.startswith(_POST_OPT):
        return PostOptStrategy(
            explore_trials=max(1, trials // 2),
            mended=name == "post-opt-mended",
            modules=modules,
            dropped=dropped,
        )
    return AskTellStrategy(name)
