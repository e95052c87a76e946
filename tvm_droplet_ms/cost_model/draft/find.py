# SPDX-License-Identifier: Apache-2.0
"""The default draft for a target.

The search strategy calls the global function ``tvm_droplet_ms.find_draft``, so that it need not
import this package.
"""

from typing import TYPE_CHECKING

import tvm_ffi

if TYPE_CHECKING:
    from tvm.target import Target

    from ...search_strategy.drafting import Draft


def find_draft(target: "Target") -> "Draft | None":
    """Make the draft for a target.

    ``target``: the target to tune for. For a CPU, the draft predicts the throughput of schedules.
    For a GPU target with launch limits, it knows which schedules can be launched. Returns None for
    other targets.
    """
    if target.kind.name == "llvm":
        from .symbol_draft import SymbolDraft

        return SymbolDraft.from_file()
    from .gpu.gpu_limits import GpuLimits

    return GpuLimits.of(target) if GpuLimits.are_told_by(target) else None


tvm_ffi.register_global_func("tvm_droplet_ms.find_draft", find_draft, override=True)
