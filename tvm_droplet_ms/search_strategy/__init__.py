# SPDX-License-Identifier: Apache-2.0
"""The search strategy, which chooses the schedules to measure.

The names are imported on first use, so that the modules that import no TVM can be used without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .droplet import DropletStrategy as DropletStrategy
    from .explorers.base import Explorer as Explorer
    from .explorers.evolutionary import EvolutionaryExplorer as EvolutionaryExplorer
    from .explorers.random_sampling import RandomExplorer as RandomExplorer
    from .explorers.seeded import KnownExplorer as KnownExplorer
    from .explorers.seeded import SeededExplorer as SeededExplorer
    from .log import SearchProgress as SearchProgress
else:
    # The strategy imports itself and the design spaces alone, so no ``lazy_exports`` here.
    _MODULES = {
        "DropletStrategy": "droplet",
        "EvolutionaryExplorer": "explorers.evolutionary",
        "Explorer": "explorers.base",
        "KnownExplorer": "explorers.seeded",
        "RandomExplorer": "explorers.random_sampling",
        "SearchProgress": "log",
        "SeededExplorer": "explorers.seeded",
    }
    __all__ = list(_MODULES)

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
