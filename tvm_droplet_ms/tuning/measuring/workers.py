# SPDX-License-Identifier: Apache-2.0
"""Worker processes that sample schedules and compile kernels."""

from ...measure.build import prepare_to_build
from ...measure.pool import WorkerPool, available_cpus
from ...model.kernels.registration import register_schedule_rules


def start_workers(count: int | None = None) -> WorkerPool:
    """Start worker processes, without waiting for them.

    ``count``: their number. None for one on each CPU. Returns close it after use.
    """
    return WorkerPool(count or len(available_cpus()), prepare=_prepare)


def _prepare() -> None:
    """Import what the workers need, before they are forked."""
    import xgboost  # noqa: F401

    register_schedule_rules()
    prepare_to_build()
