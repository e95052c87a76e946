# SPDX-License-Identifier: Apache-2.0
"""The prior and the draft that a search starts with.

The search strategy calls the global functions of this file by their names, so that it need not
import this package.
"""

from typing import TYPE_CHECKING

import tvm_ffi

if TYPE_CHECKING:
    from tvm.target import Target

    from ..search_strategy.drafting import Draft
    from .transfer import TransferModel


def find_prior(prior: str, target: "Target") -> "TransferModel | None":
    """Make the cost model that a search starts with.

    ``prior``: "auto" for the package's model for the target's kind, or the path of a model file.
    ``target``: the target to tune for. Returns a new model with its own measurements, or None if
    the package has no model for the target's kind. The file for "auto" is read once per process.
    Raises ``ModelFileError`` if the path is not a model file.
    """
    from .pretrained_model import shipped_model
    from .transfer import TransferModel

    if prior != "auto":
        return TransferModel.from_file(prior)
    model = shipped_model(target)
    return None if model is None else TransferModel(model)


tvm_ffi.register_global_func("tvm_droplet_ms.find_prior", find_prior, override=True)


def find_draft(target: "Target") -> "Draft | None":
    """Make the draft for a target.

    ``target``: the target to tune for. For a CPU, the draft predicts the throughput of schedules.
    For a GPU target with launch limits, it knows which schedules can be launched. Returns None for
    other targets.
    """
    if target.kind.name == "llvm":
        from .draft.symbol_draft import SymbolDraft

        return SymbolDraft.from_file()
    from .draft.gpu.gpu_limits import GpuLimits

    return GpuLimits.of(target) if GpuLimits.are_told_by(target) else None


tvm_ffi.register_global_func("tvm_droplet_ms.find_draft", find_draft, override=True)
