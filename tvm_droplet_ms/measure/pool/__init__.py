# SPDX-License-Identifier: Apache-2.0
"""Long-lived worker processes, independent of TVM."""

from ..failures import TIME_LIMIT
from .client import TaskFailed
from .cpus import available_cpus
from .pool import WorkerPool, dump

__all__ = ["TIME_LIMIT", "TaskFailed", "WorkerPool", "available_cpus", "dump"]
