# SPDX-License-Identifier: Apache-2.0
"""Long-lived worker processes, independent of TVM."""

from ..failures import TIME_LIMIT
from .client import TaskFailed
from .pool import ThisProcess, WorkerPool, available_cpus, dump, require_linux

__all__ = [
    "TIME_LIMIT",
    "TaskFailed",
    "ThisProcess",
    "WorkerPool",
    "available_cpus",
    "dump",
    "require_linux",
]
