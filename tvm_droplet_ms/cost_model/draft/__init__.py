# SPDX-License-Identifier: Apache-2.0
"""Drafts: estimates of a schedule before it is replayed.

The decisions of a schedule determine its loops (``skeleton``), and the loops determine its symbols
(``symbols``). Trees fitted to other workloads score the symbols (``draft_file``).
"""

from typing import TYPE_CHECKING

from ...compat.lazy import lazy_names

if TYPE_CHECKING:
    from .draft_file import DraftFileError
    from .gpu.gpu_limits import GpuLimits
    from .symbol_draft import SymbolDraft

__all__ = ["DraftFileError", "GpuLimits", "SymbolDraft"]

_MODULES = {
    "DraftFileError": ".draft_file",
    "GpuLimits": ".gpu.gpu_limits",
    "SymbolDraft": ".symbol_draft",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
