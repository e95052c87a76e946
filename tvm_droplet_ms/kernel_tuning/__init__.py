# SPDX-License-Identifier: Apache-2.0
"""Tune a single kernel: one call, stops, resume, and a winner that was checked.

``tune_kernel`` is the call. ``stoppable_strategy`` says when to end, ``arguments`` makes the
inputs, ``verification`` checks and times the best schedules in worker processes, and ``records``
puts what it found into the database.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .errors import KernelError, KernelInterrupted
    from .kernel_result import KernelResult
    from .kernel_run import tune_kernel

__all__ = ["KernelError", "KernelInterrupted", "KernelResult", "tune_kernel"]

_MODULES = {
    "KernelError": ".errors",
    "KernelInterrupted": ".errors",
    "KernelResult": ".kernel_result",
    "tune_kernel": ".kernel_run",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
