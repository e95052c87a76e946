# SPDX-License-Identifier: Apache-2.0
"""Drafts: estimates of a schedule before it is replayed.

The decisions of a schedule determine its loops (``skeleton``), and the loops determine its symbols
(``symbols``). Trees fitted to other workloads score the symbols (``draft_file``).
"""

from typing import TYPE_CHECKING

from ...compat.lazy import lazy_exports

if TYPE_CHECKING:
    from .draft_file import DraftFileError as DraftFileError
    from .gpu.gpu_limits import GpuLimits as GpuLimits
    from .symbol_draft import SymbolDraft as SymbolDraft
else:
    __getattr__, __all__ = lazy_exports(__name__, __file__)
