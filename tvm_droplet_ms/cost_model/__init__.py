# SPDX-License-Identifier: Apache-2.0
"""Cost models, which predict the speed of a scheduled program before it is measured.

The names are imported on first use, so that importing this package does not load TVM.
"""

from typing import TYPE_CHECKING

from ..compat.lazy import lazy_names

if TYPE_CHECKING:
    from .model_file import ModelFileError
    from .pretrained_model import PretrainedModel
    from .transfer import TransferModel

__all__ = ["ModelFileError", "PretrainedModel", "TransferModel"]

_MODULES = {
    "ModelFileError": ".model_file",
    "PretrainedModel": ".pretrained_model",
    "TransferModel": ".transfer",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
