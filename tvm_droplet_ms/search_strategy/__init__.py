# SPDX-License-Identifier: Apache-2.0
"""The search strategy, which chooses the schedules to measure.

The names are imported on first use, so that the modules that import no TVM can be used without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .droplet import DropletStrategy
    from .explorers import (
        EvolutionaryExplorer,
        Explorer,
        KnownExplorer,
        RandomExplorer,
        SeededExplorer,
    )
    from .log import SearchProgress
else:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "DropletStrategy",
    "EvolutionaryExplorer",
    "Explorer",
    "KnownExplorer",
    "RandomExplorer",
    "SearchProgress",
    "SeededExplorer",
]

_MODULES = {
    "DropletStrategy": "droplet",
    "EvolutionaryExplorer": "explorers",
    "Explorer": "explorers",
    "KnownExplorer": "explorers",
    "RandomExplorer": "explorers",
    "SearchProgress": "log",
    "SeededExplorer": "explorers",
}
