# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The measurements of a task: those of this run, and of the runs before it."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tvm_ffi import structural_equal, structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.database import Database, MemoryDatabase, TuningRecord, Workload
from tvm.target import Target

from .candidates import Candidate, Replayer
from .logger import logger

_FAILED_SECS = 1e10
"""The time that TVM's ``AddToDatabase`` stores for a failure (``add_to_database.cc``)."""

_MACHINERY_FAILURE = "machinery failure: "
"""Begins the message of a builder or a runner that could not measure a candidate: that of
``WarmBuilder`` and ``PromptRunner``, which this package shares no code with."""


def valid_secs(run_secs: Sequence[object] | None) -> tuple[float, ...]:
    """The times of a measurement in seconds, empty if it failed.

    A time that is not finite and positive counts as a failure: a zero would rank first for ever.
    """
    secs = tuple(float(sec) for sec in run_secs or ())  # type: ignore[arg-type]
    if not all(math.isfinite(sec) and 0.0 < sec < _FAILED_SECS for sec in secs):
        return ()
    return secs


def is_unmeasured(run_secs: Sequence[object] | None, error_msg: str | None = None) -> bool:
    """Whether the machine failed and not the candidate, which may be tried again.

    A failed candidate has no ``run_secs`` in its result, and one time of 1e10 in a database. A
    candidate that could not be measured has an empty list in both; or, where a builder failed so
    and TVM made the result, an error message that says it.
    """
    if error_msg is not None and _MACHINERY_FAILURE in error_msg:
        return True
    return run_secs is not None and len(run_secs) == 0


def mean(secs: Sequence[float]) -> float:
    """The mean of at least one time, by which TVM's database ranks too."""
    return sum(secs) / len(secs)


def is_for_target(record: TuningRecord, target: Target) -> bool:
    """Whether a record was measured on a target; a record without a target may have been.

    Targets are compared structurally: one read back from JSON is another object, with its
    attributes in another order.
    """
    return record.target is None or bool(structural_equal(record.target, target))


@dataclass(frozen=True)
class Measured:
    """A successfully measured module.

    Parameters
    ----------
    trace : Trace
        Its trace.
    secs : tuple[float, ...]
        Its times in seconds, all of them.
    """

    trace: Trace
    secs: tuple[float, ...]


@dataclass
class History:
    """The measurements of one task, and the database view that evolution sees.

    The view holds the valid records of this workload and this target only: TVM's database ignores
    the target, and evolution would start from records of another.

    Parameters
    ----------
    mod : IRModule
        The workload.
    target : Target
        The target.

    Attributes
    ----------
    view : Database
        The records that evolution may start from.
    ignored : Counter[str]
        The number of skipped database records, by reason.
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
        """Take over a database's records of this workload and target, failed ones included.

        Records of another target, of candidates that could not be measured, and records that no
        longer replay are skipped and counted in ``ignored``.
        """
        is_ours = _WorkloadFilter(self.mod, database.commit_workload(self.mod))
        for record in database.get_all_tuning_records():
            if not is_ours(record.workload):
                continue
            if not is_for_target(record, self.target):
                self.ignored["another target"] += 1
                continue
            if is_unmeasured(record.run_secs):
                self.ignored["could not be measured"] += 1
                continue
            # A trace that a newer TVM or another design space cannot replay fails in as many ways
            # as there are schedule primitives.
            try:
                candidate = replayer.restore(record.trace)
            except Exception as error:
                if not self.ignored["no longer replays"]:
                    logger.warning("a database record no longer replays, skipped: %s", error)
                self.ignored["no longer replays"] += 1
                continue
            self.add(candidate, valid_secs(record.run_secs))

    def add(self, candidate: Candidate, secs: tuple[float, ...]) -> None:
        """Remember a measurement.

        Parameters
        ----------
        candidate : Candidate
            The candidate.
        secs : tuple[float, ...]
            Its times in seconds; empty for a failure, which is never tried again. A database may
            hold a module twice: its times are added to those before.
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
        """Whether a candidate's module was measured, failures included."""
        return candidate.module in self._times

    def secs(self, candidate: Candidate) -> tuple[float, ...]:
        """All valid times of a candidate's module in seconds; empty if it failed or is unknown."""
        return self._times.get(candidate.module, ())

    def ranking(self) -> Iterator[Measured]:
        """The successfully measured modules, the fastest mean first."""
        means = {module: mean(secs) for module, secs in self._times.items() if secs}
        for module in sorted(means, key=means.__getitem__):
            yield Measured(self._traces[module], self._times[module])

    def measurements(self) -> Iterator[tuple[int, Trace, tuple[float, ...]]]:
        """Each measured module, its trace, and its times in seconds, none if it failed."""
        for module, secs in self._times.items():
            yield module, self._traces[module], secs

    def best(self) -> Measured | None:
        """The module with the fastest mean; None before there is one."""
        return next(self.ranking(), None)


class _WorkloadFilter:
    """Whether a record's workload is the one given, in a database of any kind."""

    def __init__(self, mod: IRModule, token: Workload) -> None:
        self._hash = structural_hash(mod)
        self._known: dict[Workload, bool] = {token: True}

    def __call__(self, workload: Workload) -> bool:
        if workload not in self._known:
            self._known[workload] = structural_hash(workload.mod) == self._hash
        return self._known[workload]
