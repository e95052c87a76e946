# SPDX-License-Identifier: Apache-2.0
"""The prior of a search: the cost model that it starts with.

The search strategy finds it by the name ``tvm_droplet_ms.find_prior`` of a global function, so that
it need not import this package.
"""

from typing import TYPE_CHECKING

import tvm_ffi

if TYPE_CHECKING:
    from tvm.target import Target

    from .transfer import TransferModel


def find_prior(prior: str, target: "Target") -> "TransferModel | None":
    """Make the cost model that a search starts with.

    ``prior``: "auto" for the model that comes with the package for the target's kind; otherwise the
    path of a model's file. ``target``: the target to tune for. Returns a new model, whose
    measurements are its own; the model's file is read once in a process for "auto". None where no
    model comes with the package for the target's kind. Raises ``ModelFileError`` if the path is no
    file of a model.
    """
    from .pretrained_model import shipped_model
    from .transfer import TransferModel

    if prior != "auto":
        return TransferModel.from_file(prior)
    model = shipped_model(target)
    return None if model is None else TransferModel(model)


tvm_ffi.register_global_func("tvm_droplet_ms.find_prior", find_prior, override=True)
