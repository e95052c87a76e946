# SPDX-License-Identifier: Apache-2.0
"""One call from a model to a tuned, checked executable."""

from typing import TYPE_CHECKING

from ..compat.lazy import lazy_exports

if TYPE_CHECKING:
    from ..session.errors import ModelError as ModelError
    from .result import KernelRow as KernelRow
    from .result import TuneResult as TuneResult
    from .tuner import tune as tune
else:
    __getattr__, __all__ = lazy_exports(__name__, __file__)
