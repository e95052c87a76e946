# SPDX-License-Identifier: Apache-2.0
"""Cost models, which predict the speed of a scheduled program before it is measured.

The names are imported on first use, so that importing this package does not load TVM.
"""

from typing import TYPE_CHECKING

from ..compat.lazy import lazy_exports

if TYPE_CHECKING:
    from .model_file import ModelFileError as ModelFileError
    from .pretrained_model import PretrainedModel as PretrainedModel
    from .transfer import TransferModel as TransferModel
else:
    __getattr__, __all__ = lazy_exports(__name__, __file__)
