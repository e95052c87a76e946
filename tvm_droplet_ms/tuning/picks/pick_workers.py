# SPDX-License-Identifier: Apache-2.0
"""Sample tasks in the processes of a pool."""

import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from tvm.ir import save_json
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.target import Target

from ...compat import fast_tune_contexts
from ...cost_model.training_data import target_text
from ...measure.build import prepare_to_build
from ...measure.pool import ThisProcess, WorkerPool, available_cpus
from ...model.kernels.lowering_passes import register_schedule_rules
from ...search_strategy.known_schedules import KnownLike, check_known
from ...search_strategy.prior import PriorLike, check_prior, find_prior
from .pick_sampling import PickRequest, sample_finalists, sample_pick
from .picks import StoredPick

TIMEOUT_SECS = 120.0
"""The maximum seconds of a worker for one task."""

SHARE, LEAST_SECS = 0.2, 3.0
"""The limit of a worker for one task: a share of the remaining time, but at least ``LEAST_SECS``.
The upper limit is ``TIMEOUT_SECS``."""


def start_workers() -> WorkerPool:
    """Start processes that sample schedules and compile kernels, one per CPU, without waiting.

    The caller must close the pool.
    """
    return WorkerPool(len(available_cpus()), prepare=_prepare)


def _prepare() -> None:
    """Import the dependencies of the workers before they are forked."""
    import xgboost  # noqa: F401

    register_schedule_rules()
    prepare_to_build()


@dataclass(frozen=True)
class WarmStart:
    """What measurements of other models taught; see ``prior`` and ``known`` of ``tune``.

    Raises ``ValueError`` if a file is missing or has other content.
    """

    prior: PriorLike = "auto"
    known: KnownLike = "auto"
    _models: dict[str, CostModel | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_prior(self.prior)
        check_known(self.known)

    def model(self, target: Target) -> CostModel | None:
        """Return the cost model of a target; None if there is none."""
        kind = target_text(target)
        if kind not in self._models:
            self._models[kind] = find_prior(self.prior, target)
        return self._models[kind]


class PickWorkers:
    """Makes picks in the processes of a pool; each takes at most a share of the remaining time.

    ``left``: returns the remaining seconds.
    """

    def __init__(
        self,
        pool: WorkerPool | ThisProcess,
        prior: PriorLike = "auto",
        left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._pool = pool
        self._prior = prior
        self._left = left

    def submit(self, key: str, request: PickRequest, is_asked: bool) -> "Future[StoredPick]":
        """Have a worker make a pick; ``is_asked``: whether a cost model ranks the samples."""
        arguments = self._prior, key, request, is_asked
        return self._pool.submit(self._timeout(), _pick, *arguments)

    def submit_finalists(self, request: PickRequest, count: int) -> "Future[list[str]]":
        """Have a worker choose schedules to measure, as JSON; see ``sample_finalists``."""
        arguments = self._prior, request, count
        return self._pool.submit(self._timeout(), _finalists, *arguments)

    def _timeout(self) -> float:
        return min(TIMEOUT_SECS, max(LEAST_SECS, SHARE * self._left()))


_warm_start: WarmStart | None = None


def _warm_start_of(prior: PriorLike) -> WarmStart:
    global _warm_start
    if _warm_start is None or _warm_start.prior != prior:
        _warm_start = WarmStart(prior, known=None)
    return _warm_start


def _pick(prior: PriorLike, key: str, request: PickRequest, is_asked: bool) -> StoredPick:
    with fast_tune_contexts():
        model = _warm_start_of(prior).model(request.target) if is_asked else None
        return sample_pick(request, model).to_line(key)


def _finalists(prior: PriorLike, request: PickRequest, count: int) -> list[str]:
    with fast_tune_contexts():
        model = _warm_start_of(prior).model(request.target)
        return [save_json(trace.as_json()) for trace in sample_finalists(request, model, count)]
