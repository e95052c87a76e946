# SPDX-License-Identifier: Apache-2.0
"""Sample tasks in this process or in worker processes."""

import math
from collections.abc import Callable
from concurrent.futures import Future

from tvm.ir import save_json
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.target import Target

from ...compat import fast_tune_contexts
from ...cost_model.training_data import target_text
from ...measure.build import prepare_to_build
from ...measure.pool import WorkerPool, available_cpus
from ...model.kernels.registration import register_schedule_rules
from ...search_strategy.prior import PriorLike, find_prior
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


class Models:
    """The cost model of each target. ``prior``: see ``DropletStrategy``."""

    def __init__(self, prior: PriorLike) -> None:
        self.prior = prior
        self._models: dict[str, CostModel | None] = {}

    def find(self, target: Target) -> CostModel | None:
        """Return the cost model of a target; None if there is none."""
        kind = target_text(target)
        if kind not in self._models:
            self._models[kind] = find_prior(self.prior, target)
        return self._models[kind]


class LocalSampler:
    """Makes each pick immediately in this process."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def submit(self, key: str, request: PickRequest, is_asked: bool) -> "Future[StoredPick]":
        """Make the pick of a task."""
        future: Future[StoredPick] = Future()
        # TVM raises many error types if it cannot make a design space or extract features. The
        # error belongs to this task.
        try:
            future.set_result(_pick(self._models, key, request, is_asked))
        except Exception as error:
            future.set_exception(error)
        return future


class PickWorkers:
    """Makes picks in worker processes; each takes at most a share of the remaining time.

    ``left``: returns the remaining seconds.
    """

    def __init__(
        self,
        pool: WorkerPool,
        prior: PriorLike = "auto",
        left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._pool = pool
        self._prior = prior
        self._left = left

    def submit(self, key: str, request: PickRequest, is_asked: bool) -> "Future[StoredPick]":
        """Have a worker make a pick; ``is_asked``: whether a cost model ranks the samples."""
        arguments = self._prior, key, request, is_asked
        return self._pool.submit(self._timeout(), _pick_in_worker, *arguments)

    def submit_finalists(self, request: PickRequest, count: int) -> "Future[list[str]]":
        """Have a worker choose schedules to measure, as JSON; see ``sample_finalists``."""
        arguments = self._prior, request, count
        return self._pool.submit(self._timeout(), _finalists_in_worker, *arguments)

    def _timeout(self) -> float:
        return min(TIMEOUT_SECS, max(LEAST_SECS, SHARE * self._left()))


def _pick(models: Models, key: str, request: PickRequest, is_asked: bool) -> StoredPick:
    model = models.find(request.target) if is_asked else None
    return sample_pick(request, model).to_line(key)


_worker_models: Models | None = None


def _models_in_worker(prior: PriorLike) -> Models:
    global _worker_models
    if _worker_models is None or _worker_models.prior != prior:
        _worker_models = Models(prior)
    return _worker_models


def _pick_in_worker(prior: PriorLike, key: str, request: PickRequest, is_asked: bool) -> StoredPick:
    with fast_tune_contexts():
        return _pick(_models_in_worker(prior), key, request, is_asked)


def _finalists_in_worker(prior: PriorLike, request: PickRequest, count: int) -> list[str]:
    with fast_tune_contexts():
        model = _models_in_worker(prior).find(request.target)
        return [save_json(trace.as_json()) for trace in sample_finalists(request, model, count)]
