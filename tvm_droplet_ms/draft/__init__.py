# SPDX-License-Identifier: Apache-2.0
"""Drafts: what is believed of a schedule before it is replayed.

The loops of a schedule follow from its decisions (``skeleton``), its symbols from the loops
(``symbols``), and trees that have learned from other workloads score the symbols (``fitted``).
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

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
