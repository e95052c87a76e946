# SPDX-License-Identifier: Apache-2.0
"""The loop that TVM's task scheduler runs around a strategy, without a builder or a runner."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from tvm_ffi import structural_hash

from tvm.ir.utils import derived_object
from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord

from .objectives import Decisions, Objective, decisions_of

MAX_ASKS = 300
"""A strategy that was asked so often for a handful of trials does not end."""


@dataclass(frozen=True)
class Trial:
    """A measured candidate: the structural hash of its module, its decisions and its times."""

    module: int
    decisions: Decisions
    secs: tuple[float, ...] | None
    trace: Trace


@dataclass
class Drive:
    """Measurements of a strategy by batch, and whether it ended by itself."""

    batches: list[list[Trial]] = field(default_factory=list)
    ended: bool = False

    @property
    def trials(self) -> list[Trial]:
        return [trial for batch in self.batches for trial in batch]

    @property
    def modules(self) -> list[int]:
        return [trial.module for trial in self.trials]

    @property
    def repeated(self) -> set[int]:
        """The modules that were measured more than once."""
        return {module for module, count in Counter(self.modules).items() if count > 1}


def drive(
    context: ms.TuneContext,
    objective: Objective,
    *,
    max_trials: int = 40,
    num_trials_per_iter: int = 7,
    database: ms.database.Database | None = None,
    cost_model: ms.cost_model.CostModel | Literal["fixed"] | None = "fixed",
    max_batches: int = MAX_ASKS,
    finish: bool = True,
) -> Drive:
    """Tune a context as TVM's ``TaskScheduler`` does, and add to the database as it does.

    ``cost_model`` (CostModel | Literal["fixed"] | None): the cost model of the tuning; a
    ``FixedModel`` by default. ``max_batches``: give up after so many batches, as a run that is
    killed. ``finish``: whether to call ``post_tuning``.
    """
    strategy = context.search_strategy
    context.pre_tuning(
        max_trials,
        num_trials_per_iter,
        database=database,
        cost_model=FixedModel() if cost_model == "fixed" else cost_model,
    )
    driven = Drive()
    while len(driven.batches) < max_batches:
        candidates = strategy.generate_measure_candidates()
        if candidates is None:
            driven.ended = True
            break
        results = [objective(candidate) for candidate in candidates]
        strategy.notify_runner_results(candidates, results)
        driven.batches.append([_trial(*pair) for pair in zip(candidates, results)])
        if database is not None:
            workload = database.commit_workload(context.mod)
            for candidate, result in zip(candidates, results):
                database.commit_tuning_record(_record(candidate, result, workload, context.target))
    if finish:
        strategy.post_tuning()
    return driven


def _trial(candidate: ms.MeasureCandidate, result: ms.runner.RunnerResult) -> Trial:
    secs = result.run_secs
    return Trial(
        structural_hash(candidate.sch.mod),
        decisions_of(candidate.sch),
        None if secs is None else tuple(float(sec) for sec in secs),
        candidate.sch.trace,
    )


def _record(candidate, result, workload, target) -> TuningRecord:
    secs = [1e10] if result.run_secs is None else [float(sec) for sec in result.run_secs]
    return TuningRecord(candidate.sch.trace, workload, secs, target, candidate.args_info)


def _hashed(candidate: ms.MeasureCandidate) -> float:
    return structural_hash(candidate.sch.mod) % 1009 / 1009


@derived_object
class FixedModel(ms.cost_model.PyCostModel):
    """A cost model that is a fixed function of the candidate, and learns nothing."""

    def __init__(self, score: Callable[[ms.MeasureCandidate], float] = _hashed) -> None:
        super().__init__()
        self.score = score

    def load(self, path: str) -> None:
        pass

    def save(self, path: str) -> None:
        pass

    def update(self, context, candidates, results) -> None:
        pass

    def predict(self, context, candidates) -> np.ndarray:
        return np.array([self.score(candidate) for candidate in candidates], dtype="float64")


@derived_object
class MadeUpFuture(ms.runner.PyRunnerFuture):
    """A result that is there at once, of these times."""

    def __init__(self, secs: list[float]) -> None:
        super().__init__()
        self.secs = secs

    def done(self):
        return True

    def result(self):
        return ms.runner.RunnerResult(self.secs, None)


@derived_object
class OneMillisecond(ms.runner.PyRunner):
    """A runner that runs nothing: every candidate takes a millisecond."""

    def run(self, runner_inputs):
        return [MadeUpFuture([1e-3]) for _ in runner_inputs]
