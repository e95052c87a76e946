# SPDX-License-Identifier: Apache-2.0
"""The search methods of the live comparison.

Each method is a search strategy and a cost model. Budget, builder, runner, batch size and seeds are
the same for all methods. A factory is called only if its method is chosen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Method:
    """A search method.

    - ``strategy``: makes the ``strategy`` argument of ``tune_tir`` from the method's files, passed
      by name.
    - ``cost_model``: makes the ``cost_model`` argument of ``tune_tir`` from the target and the same
      files.
    - ``takes``: the shipped data that the method starts from: "prior" (the cost model), "draft",
      and "known" (the known schedules). A file may replace each.
    """

    strategy: Callable[..., Any]
    cost_model: Callable[..., Any]
    takes: tuple[str, ...] = ()


def _evolutionary(**_: str) -> str:
    return "evolutionary"


def _droplet(**options: Any) -> Callable[..., Any]:
    def make(draft: str | None = None, known: str | None = None, **prior: str) -> Any:
        from tvm_droplet_ms import DropletStrategy
        from tvm_droplet_ms.cost_model.draft import SymbolDraft
        from tvm_droplet_ms.search_strategy.explorers.seeded import KnownExplorer

        given: dict[str, Any] = {"draft": SymbolDraft.from_file(draft)} if draft else {}
        if known:
            given["explorer"] = KnownExplorer(known)
        return DropletStrategy(**{"stop": None, **prior, **given, **options})

    return make


def _published(**_: str) -> Any:
    from tvm_droplet_ms import DropletStrategy

    return DropletStrategy.published()


def _default_xgb(_target: Any, **_: str) -> str:
    return "xgb"


def _early_xgb(_target: Any, **_: str) -> Any:
    """TVM's cost model with predictions after 16 samples; the default is 100."""
    from tvm.s_tir.meta_schedule.cost_model import XGBModel
    from tvm.s_tir.meta_schedule.utils import cpu_count

    return XGBModel(num_warmup_samples=16, num_tuning_cores=cpu_count(logical=False))


def _pretrained(target: Any, prior: str | None = None) -> Any:
    from tvm_droplet_ms.cost_model import TransferModel

    return TransferModel.pretrained(target) if prior is None else TransferModel.from_file(prior)


_ALL = ("prior", "draft", "known")

METHODS: Mapping[str, Method] = {
    "evolutionary": Method(_evolutionary, _default_xgb),
    "evolutionary with early model": Method(_evolutionary, _early_xgb),
    "evolutionary with prior": Method(_evolutionary, _pretrained, ("prior",)),
    "droplet": Method(_droplet(), _default_xgb, _ALL),
    "droplet without known": Method(_droplet(explorer="random"), _default_xgb, ("prior", "draft")),
    "droplet without draft": Method(_droplet(draft=None), _default_xgb, ("prior", "known")),
    "droplet without prior": Method(_droplet(prior=None), _default_xgb, ("draft", "known")),
    "droplet without either": Method(_droplet(prior=None, draft=None), _default_xgb, ("known",)),
    "droplet as published": Method(_published, _default_xgb),
}
"""The search methods by name. ``evolutionary`` is TVM's search with its defaults: its XGBoost model
predicts at random until it has 100 samples. ``droplet`` is ``DropletStrategy()`` with its defaults,
except that it spends all trials."""
