# SPDX-License-Identifier: Apache-2.0
"""Tunes a single kernel in one call, with stop rules, resume, and a verified winner.

``tune_kernel`` is the entry point. ``measuring`` runs the measuring loop of ``budget``,
``check.arguments`` makes the inputs, ``check.verification`` checks and times the best schedules in
worker processes, and ``choice`` writes the new times to the database.
"""

from typing import TYPE_CHECKING

from ...compat.lazy import lazy_names

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
