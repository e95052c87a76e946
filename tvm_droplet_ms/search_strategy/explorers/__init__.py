# SPDX-License-Identifier: Apache-2.0
"""Explorers, which choose the schedules to measure before the first descent."""

from .base import Explorer, ExplorerRun, SearchContext
from .evolutionary import EvolutionaryExplorer
from .random_sampling import RandomExplorer
from .seeded import KnownExplorer, SeededExplorer

__all__ = [
    "EvolutionaryExplorer",
    "Explorer",
    "ExplorerRun",
    "KnownExplorer",
    "RandomExplorer",
    "SearchContext",
    "SeededExplorer",
]
