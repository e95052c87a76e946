# SPDX-License-Identifier: Apache-2.0
"""The explorer of "Learning to Optimize Tensor Programs" (Chen et al., 2018)."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .explorer import AnnealingExplorer

__all__ = ["AnnealingExplorer"]

_MODULES = {"AnnealingExplorer": ".explorer"}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
