# SPDX-License-Identifier: Apache-2.0
"""A check that a model fits in memory while it is tuned."""

from typing import Any

import psutil

from tvm import relax

from ...model.bindings import array_of
from ...session.errors import ModelError
from .imported import ImportedModel

COPIES = 4
"""Copies of the weights while a model is prepared: those of the framework, of the imported module,
of the prepared one, and of the packed ones in the executable."""


def check_memory(imported: ImportedModel, available: int | None = None) -> None:
    """Refuse a model whose weights do not fit.

    ``available``: bytes of memory to use. Defaults to what the machine has left. Raises
    ``ModelError``: says how much is needed.
    """
    if available is None:
        available = int(psutil.virtual_memory().available)
    needed = (COPIES - 2) * weight_bytes(imported)
    if needed > available:
        raise ModelError(
            f"the model needs {needed / 1e9:.1f} GB more memory while it is tuned, and "
            f"{available / 1e9:.1f} GB are free: use a machine with more"
        )


def weight_bytes(imported: ImportedModel) -> int:
    """The bytes of the constants of ``main``, each counted once."""
    sizes: dict[int, int] = {}

    def add(expression: Any) -> None:
        array = array_of(expression)
        if array is not None:
            sizes[array.ctypes.data] = array.nbytes

    relax.analysis.post_order_visit(imported.mod["main"].body, add)
    return sum(sizes.values())
