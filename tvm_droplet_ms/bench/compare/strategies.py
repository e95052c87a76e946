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

from collections.abc import Container
from typing import Literal, NamedTuple

from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy

from ...search_strategy import DropletStrategy
from ...search_strategy.search import WITHOUT
from ..baselines.post_opt_strategy import PostOptStrategy
from .results import CompareError
from ..baselines.strategy import AskTellStrategy

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

_WITHOUT = "droplet without "

ABLATIONS = tuple(_WITHOUT + part for part in WITHOUT)
"""``DropletStrategy`` with one part off, each."""

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
    cost_model : Literal["xgb", "random"]
        TVM's XGBoost model, or, for a strategy that asks none, the model that learns nothing: so
        that training a model is charged to those who use it.
    """

    strategy: SearchStrategy
    cost_model: Literal["xgb", "random"]


class UnknownStrategyError(CompareError):
    """No strategy has that name."""


def make_strategy(name: str, trials: int, modules: Container[int] | None = None) -> Search:
    """Make a strategy.

    Parameters
    ----------
    name : str
        One of ``STRATEGIES`` or ``ABLATIONS``.
    trials : int
        The measurements of the whole run; "post-opt" explores with half of them.
    modules : Container[int] | None
        The structural hashes of the modules that can be measured; None for all. Only "post-opt"
        asks: its candidates can lie outside a space that is closed to all others.

    Raises
    ------
    UnknownStrategyError
        If no strategy has that name.
    ImportError
        If the strategy needs a package that is not installed.
    """
    if name not in STRATEGIES + ABLATIONS:
        raise UnknownStrategyError(
            f"{name!r} is no strategy, expected one of {', '.join(STRATEGIES + ABLATIONS)}"
        )
    cost_model: Literal["xgb", "random"] = "xgb" if name in _LEARNING else "random"
    return Search(_make(name, trials, modules), cost_model)


def _make(name: str, trials: int, modules: Container[int] | None) -> SearchStrategy:
    if name in _TVM:
        return SearchStrategy.create(name)
    if name == "droplet":
        return DropletStrategy()
    if name.startswith(_WITHOUT):
        return DropletStrategy(without=(name.removeprefix(_WITHOUT),))
    if name.startswith("post-opt"):
        return PostOptStrategy(
            explore_trials=max(1, trials // 2),
            mended=name == "post-opt-mended",
            modules=modules,
        )
    return AskTellStrategy(name)
