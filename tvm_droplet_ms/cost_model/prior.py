# SPDX-License-Identifier: Apache-2.0
"""The prior of a search: the cost model that it starts with.

The search strategy calls the global function ``tvm_droplet_ms.find_prior``, so that it need not
import this package.
"""

from typing import TYPE_CHECKING

import tvm_ffi

if TYPE_CHECKING:
    from tvm.target import Target

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
