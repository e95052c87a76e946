# SPDX-License-Identifier: Apache-2.0
"""The draft that comes with the package for a target.

The search strategy finds it by the name ``tvm_droplet_ms.find_draft`` of a global function, so that
it need not import this package.
"""

from typing import TYPE_CHECKING

import tvm_ffi

if TYPE_CHECKING:
    from tvm.target import Target

    from ..search_strategy.drafting.draft import Draft


def find_draft(target: "Target") -> "Draft | None":
    """Make the draft for a target.

    ``target``: the target to tune for. What the schedules of a CPU are expected to run at; which
    schedules a GPU can launch, where the target says its limits; None for other targets.
    """
    if target.kind.name == "llvm":
        from .symbol_draft import SymbolDraft

        return SymbolDraft.from_file()
    from .gpu.gpu_limits import GpuLimits

    return GpuLimits.of(target) if GpuLimits.are_told_by(target) else None


tvm_ffi.register_global_func("tvm_droplet_ms.find_draft", find_draft, override=True)
