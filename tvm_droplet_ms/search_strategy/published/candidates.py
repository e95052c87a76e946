# SPDX-License-Identifier: Apache-2.0
"""Candidates for measurement, and the measurements of a task."""

import logging
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm_ffi import structural_equal, structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import Database, MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.profiler import Profiler
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.target import Target

logger = logging.getLogger(__name__)

_FAILED_SECS = 1e10
"""The time that TVM's ``AddToDatabase`` stores for a failure (``add_to_database.cc``)."""


@dataclass(frozen=True)
class Candidate:
    """A schedule after its postprocessors, identified by the structural hash of its module."""

    schedule: Schedule
    module: int

    @staticmethod
    def from_schedule(schedule: Schedule) -> "Candidate":
        """The candidate of a schedule that has passed its postprocessors."""
        return Candidate(schedule, structural_hash(schedule.mod))

    @property
    def trace(self) -> Trace:
        """The trace, with its realized decisions."""
        return self.schedule.trace

    def measure_candidate(self) -> MeasureCandidate:
        """The input of a Builder and a Runner."""
        args_info = ArgInfo.from_entry_func(self.schedule.mod, remove_preproc=True)
        return MeasureCandidate(self.schedule, args_info)


class Replayer:
    """Replays traces on one workload, as TVM's ``ThreadedTraceApply`` does (``utils.h``).

    Dropped traces are counted in ``dropped``, by the postprocessor or the error that dropped them.
    The generator seeds the schedules, for postprocessors that sample.
    """

    def __init__(self, mod: IRModule, postprocs: Sequence[Any], generator: random.Random) -> None:
        self.mod = mod
        self.dropped = Counter[str]()
        self._postprocs = list(postprocs)
        self._generator = generator

    def new_schedule(self, error_render_level: str = "none") -> Schedule:
        """An unscheduled copy of the workload, with its own seed."""
        seed = self._generator.randint(1, 2**31 - 2)
        return Schedule(
            self.mod, seed=seed, debug_mask="none", error_render_level=error_render_level
        )

    def replay(self, trace: Trace) -> Candidate | None:
        """Replay a trace, and run the task's postprocessors anew; None if either fails."""
        with Profiler.timeit("Droplet/Replay"):
            return self._counted(self._replay(trace, self.new_schedule()))

    def _counted(self, result: Candidate | str) -> Candidate | None:
        """Return a candidate; for a reason that dropped it, count the reason and return None."""
        if isinstance(result, Candidate):
            return result
        self.dropped[result] += 1
        return None

    def _replay(self, trace: Trace, schedule: Schedule) -> Candidate | str:
        """The candidate of a trace, or the reason for dropping it."""
        culprit = "replay"
        # TVM raises errors of many types from a schedule primitive or a postprocessor, and
        # ThreadedTraceApply treats each of them as "not in the space".
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            for postproc in self._postprocs:
                culprit = str(postproc)
                if not postproc.apply(schedule):
                    return culprit
        except Exception as error:
            return f"{culprit}: {type(error).__name__}"
        return Candidate.from_schedule(schedule)

    def restore(self, trace: Trace) -> Candidate:
        """Replay a recorded trace with its postprocessors' instructions, or raise TVM's error."""
        schedule = self.new_schedule(error_render_level="fast")
        trace.apply_to_schedule(schedule, remove_postproc=False)
        return Candidate.from_schedule(schedule)


def valid_secs(run_secs: Sequence[object] | None) -> tuple[float, ...]:
    """The times of a measurement in seconds, empty if it failed.

    A time that is not finite and positive counts as a failure: a zero would always rank first.
    """
    secs = tuple(float(sec) for sec in run_secs or ())  # type: ignore[arg-type]
    if not all(math.isfinite(sec) and 0.0 < sec < _FAILED_SECS for sec in secs):
        return ()
    return secs


def mean(secs: Sequence[float]) -> float:
    """The mean of at least one time; TVM's database also ranks by the mean."""
    return sum(secs) / len(secs)


def is_for_target(record: TuningRecord, target: Target) -> bool:
    """True if a record is for a target, or names no target."""
    # A target read from JSON is another object, with its attributes in another order.
    return record.target is None or bool(structural_equal(record.target, target))


@dataclass(frozen=True)
class Measured:
    """The trace of a successfully measured module, and all its times in seconds."""

    trace: Trace
    secs: tuple[float, ...]


@dataclass
class History:
    """The measurements of one task, and the database view that evolution sees.

    The view holds the valid records of this workload and this target only: TVM's database ignores
    the target, and evolution would start from records of another one. ``ignored`` counts the
    skipped records, which are for another target or no longer replay.
    """

    mod: IRModule
    target: Target
    view: Database = field(default_factory=MemoryDatabase, init=False)
    ignored: Counter[str] = field(default_factory=Counter, init=False)
    _times: dict[int, tuple[float, ...]] = field(default_factory=dict, init=False)
    _traces: dict[int, Trace] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._workload = self.view.commit_workload(self.mod)

    def load(self, database: Database, replayer: Replayer) -> None:
        """Take over a database's records of this workload and target, failed ones included."""
        workload = structural_hash(self.mod)
        is_ours = {database.commit_workload(self.mod): True}
        for record in database.get_all_tuning_records():
            if record.workload not in is_ours:
                is_ours[record.workload] = structural_hash(record.workload.mod) == workload
            if not is_ours[record.workload]:
                continue
            reason = self._reason_to_skip(record)
            if reason is not None:
                self.ignored[reason] += 1
                continue
            # TVM raises errors of many types for a trace that a newer version or another design
            # space cannot replay.
            try:
                candidate = replayer.restore(record.trace)
            except Exception as error:
                if not self.ignored["no longer replays"]:
                    logger.warning("a database record no longer replays, skipped: %s", error)
                self.ignored["no longer replays"] += 1
                continue
            self.add(candidate, valid_secs(record.run_secs))

    def _reason_to_skip(self, record: TuningRecord) -> str | None:
        """The reason for skipping a record of this workload; None to keep it."""
        return None if is_for_target(record, self.target) else "another target"

    def add(self, candidate: Candidate, secs: tuple[float, ...]) -> None:
        """Record the times of a candidate in seconds: none for a failure, never tried again.

        A database may hold a module twice: the new times are added to the earlier ones.
        """
        before = self._times.get(candidate.module, ())
        self._times[candidate.module] = before + secs
        self._traces.setdefault(candidate.module, candidate.trace)
        if before or not secs:
            return
        self.view.commit_tuning_record(
            TuningRecord(candidate.trace, self._workload, list(secs), self.target)
        )

    def __len__(self) -> int:
        """The number of distinct measured modules, failures included."""
        return len(self._times)

    def __contains__(self, candidate: Candidate) -> bool:
        """True if a candidate's module was measured, failures included."""
        return candidate.module in self._times

    def secs(self, candidate: Candidate) -> tuple[float, ...]:
        """All valid times of a candidate's module in seconds; empty if it failed or is unknown."""
        return self._times.get(candidate.module, ())

    def ranking(self) -> Iterator[Measured]:
        """The successfully measured modules, the fastest mean first."""
        means = {module: mean(secs) for module, secs in self._times.items() if secs}
        for module in sorted(means, key=means.__getitem__):
            yield Measured(self._traces[module], self._times[module])

    def best(self) -> Measured | None:
        """The module with the fastest mean; None before there is one."""
        return next(self.ranking(), None)
