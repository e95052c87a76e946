# SPDX-License-Identifier: Apache-2.0
"""Builds and measures candidates in long-lived worker processes.

``fast_measure`` makes a builder and a runner with the recommended settings. The other names are for
callers who configure their own builder or runner, or who run other tasks in the worker pool.

The names are imported on first use: the worker server imports this package and must not import TVM
for tasks that do not need it.
"""

from typing import TYPE_CHECKING

from ..compat.lazy import lazy_names

if TYPE_CHECKING:
    from ..compat.lazy_intrinsics import fast_start, import_intrinsics
    from .build import build_scheduled, export_shared_library, export_tar
    from .builder import WarmBuilder
    from .failures import (
        MACHINERY_FAILURE,
        TIME_LIMIT,
        Failure,
        is_machinery_failure,
        is_unmeasured,
    )
    from .pool import TaskFailed, WorkerPool, available_cpus
    from .prefetch.prefetch_weights import PrefetchWeights
    from .presets import fast_measure
    from .profile import TuningProfile
    from .runner import PromptRunner, PromptRunnerFuture
    from .stats import BuildStats, RunStats
    from .timing import prepare_to_time

__all__ = [
    "MACHINERY_FAILURE",
    "TIME_LIMIT",
    "BuildStats",
    "Failure",
    "PrefetchWeights",
    "PromptRunner",
    "PromptRunnerFuture",
    "RunStats",
    "TaskFailed",
    "TuningProfile",
    "WarmBuilder",
    "WorkerPool",
    "available_cpus",
    "build_scheduled",
    "export_shared_library",
    "export_tar",
    "fast_measure",
    "fast_start",
    "import_intrinsics",
    "is_machinery_failure",
    "is_unmeasured",
    "prepare_to_time",
]

_MODULES = {
    "MACHINERY_FAILURE": ".failures",
    "TIME_LIMIT": ".failures",
    "BuildStats": ".stats",
    "Failure": ".failures",
    "PrefetchWeights": ".prefetch.prefetch_weights",
    "PromptRunner": ".runner",
    "PromptRunnerFuture": ".runner",
    "RunStats": ".stats",
    "TaskFailed": ".pool",
    "TuningProfile": ".profile",
    "WarmBuilder": ".builder",
    "WorkerPool": ".pool",
    "available_cpus": ".pool",
    "build_scheduled": ".build",
    "export_shared_library": ".build",
    "export_tar": ".build",
    "fast_measure": ".presets",
    "fast_start": "..compat.lazy_intrinsics",
    "import_intrinsics": "..compat.lazy_intrinsics",
    "is_machinery_failure": ".failures",
    "is_unmeasured": ".failures",
    "prepare_to_time": ".timing",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
