# SPDX-License-Identifier: Apache-2.0
"""Tunes a single kernel in one call, with stop rules, resume, and a verified winner.

``tune_kernel`` is the entry point. ``measuring`` runs the measuring loop of ``budget``,
``check.arguments`` makes the inputs, ``check.verification`` checks and times the best schedules in
worker processes, and ``choice`` writes the new times to the database.
"""

from typing import TYPE_CHECKING

from ...compat.lazy import lazy_exports

if TYPE_CHECKING:
    from .errors import KernelError as KernelError
    from .errors import KernelInterrupted as KernelInterrupted
    from .kernel_result import KernelResult as KernelResult
    from .kernel_run import tune_kernel as tune_kernel
else:
    __getattr__, __all__ = lazy_exports(__name__, __file__)
