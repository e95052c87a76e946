# SPDX-License-Identifier: Apache-2.0
"""Builds and measures candidates in long-lived worker processes.

``fast_measure`` makes a builder and a runner with the recommended settings. The other names are for
callers who configure their own builder or runner, or who run other tasks in the worker pool.

The names are imported on first use: the worker server imports this package and must not import TVM
for tasks that do not need it.
"""

from typing import TYPE_CHECKING

from ..compat.lazy import lazy_exports

if TYPE_CHECKING:
    from ..compat.lazy_intrinsics import fast_start as fast_start
    from ..compat.lazy_intrinsics import import_intrinsics as import_intrinsics
    from .build import build_scheduled as build_scheduled
    from .build import export_shared_library as export_shared_library
    from .build import export_tar as export_tar
    from .builder import BuildStats as BuildStats
    from .builder import WarmBuilder as WarmBuilder
    from .candidate_timer import RunStats as RunStats
    from .failures import MACHINERY_FAILURE as MACHINERY_FAILURE
    from .failures import TIME_LIMIT as TIME_LIMIT
    from .failures import Failure as Failure
    from .failures import is_machinery_failure as is_machinery_failure
    from .failures import is_unmeasured as is_unmeasured
    from .pool import TaskFailed as TaskFailed
    from .pool import WorkerPool as WorkerPool
    from .pool import available_cpus as available_cpus
    from .prefetch.prefetch_weights import PrefetchWeights as PrefetchWeights
    from .presets import fast_measure as fast_measure
    from .profile import TuningProfile as TuningProfile
    from .runner import PromptRunner as PromptRunner
    from .runner import PromptRunnerFuture as PromptRunnerFuture
    from .timing import prepare_to_time as prepare_to_time
else:
    __getattr__, __all__ = lazy_exports(__name__, __file__)
