# SPDX-License-Identifier: Apache-2.0
"""One call from a model to a tuned, checked executable."""

from typing import TYPE_CHECKING

from ..compat.lazy import lazy_names

if TYPE_CHECKING:
    from ..session.errors import ModelError
    from .result import KernelRow, TuneResult
    from .tuner import tune

__all__ = ["KernelRow", "ModelError", "TuneResult", "tune"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "KernelRow": ".result",
            "ModelError": "..session.errors",
            "TuneResult": ".result",
            "tune": ".tuner",
        },
    )
