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
"""The search methods of the live comparison.

Each method is a search strategy and a cost model. Budget, builder, runner, batch size and seeds are
the same for all. A factory is called only when its method is chosen.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class MethodError(Exception):
    """A method cannot be made; the message says which, and why."""


@dataclass(frozen=True)
class Method:
    """A search method.

    Parameters
    ----------
    strategy : Callable[..., Any]
        Creates the ``strategy`` argument of ``tune_tir``; given what it should know, as keywords
        `prior` and `known`, or nothing.
    cost_model : Callable[..., Any]
        Creates the ``cost_model`` argument of ``tune_tir``, given the target, and the same.
    has_prior : bool
        Whether the method begins with the cost model that comes with the package.
    has_draft : bool
        Whether it begins with the draft that comes with the package.
    """

    strategy: Callable[..., Any]
    cost_model: Callable[..., Any]
    has_prior: bool = False
    has_draft: bool = False

    def takes(self, name: str) -> bool:
        """Whether a file may stand for what the package ships: "prior", "known" or "draft"."""
        return self.has_draft if name == "draft" else self.has_prior


def _evolutionary(**_: str) -> str:
    return "evolutionary"


def _droplet(**options: Any) -> Callable[[], Any]:
    def make(**experience: str) -> Any:
        from ... import DropletStrategy

        return DropletStrategy(**experience | options)

    return make


def _drafted(**options: Any) -> Callable[..., Any]:
    def make(draft: str | None = None, **experience: str) -> Any:
        from ... import DropletStrategy
        from ...draft import SymbolDraft

        return DropletStrategy(draft=SymbolDraft.from_file(draft), **experience | options)

    return make


def _default_xgb(_target: Any, **_experience: str) -> str:
    return "xgb"


def _early_xgb(_target: Any, **_experience: str) -> Any:
    """TVM's model with predictions from 16 samples on; the default is 100."""
    from tvm.s_tir.meta_schedule.cost_model import XGBModel
    from tvm.s_tir.meta_schedule.utils import cpu_count

    return XGBModel(num_warmup_samples=16, num_tuning_cores=cpu_count(logical=False))


def _pretrained(target: Any, prior: str | None = None, **_experience: str) -> Any:
    from ...cost_model import TransferModel

    if prior is None:
        return TransferModel.pretrained(target)
    model = TransferModel()
    model.load(prior)
    return model


METHODS: Mapping[str, Method] = {
    "evolutionary": Method(_evolutionary, _default_xgb),
    "evolutionary with early model": Method(_evolutionary, _early_xgb),
    "evolutionary with prior": Method(_evolutionary, _pretrained, has_prior=True),
    "droplet": Method(_drafted(), _default_xgb, has_prior=True, has_draft=True),
    "droplet without draft": Method(_droplet(draft=None), _default_xgb, has_prior=True),
    "droplet without prior": Method(_drafted(prior=None), _default_xgb, has_draft=True),
    "droplet without either": Method(_droplet(prior=None, draft=None), _default_xgb),
    "droplet as published": Method(
        _droplet(explorer="evolutionary", descent="coordinate"),
        _default_xgb,
    ),
}
"""``evolutionary`` is TVM's search with its defaults: its XGBoost model predicts at random until it
has 100 samples. ``droplet`` is ``DropletStrategy()`` with its defaults."""


def check_methods(names: Iterable[str]) -> None:
    """Make the strategy of each method, so that one that cannot be made is found before any run.

    Raises
    ------
    MethodError
        If this version of ``DropletStrategy`` does not take the options of a method.
    """
    for name in names:
        try:
            METHODS[name].strategy()
        except (TypeError, ValueError) as error:
            raise MethodError(
                f"method {name!r} cannot be made by this version of the package: {error}; leave it "
                "out of --methods"
            ) from error
