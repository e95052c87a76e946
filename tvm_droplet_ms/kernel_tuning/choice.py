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
"""Chooses the schedule to hand over: the fastest of those whose outputs are right."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import TuningRecord

from ..measure import TaskFailed
from ..search_strategy.history import mean, valid_secs
from .kernel_result import KernelError
from .records import FAILED_SECS, correct_times
from .verification import CannotCheck, KernelTime, Verdict, Verifier

BEST = 5
"""The schedules that are checked and timed again together: what was measured once may be lucky."""

SLOW_SECS = 0.5
"""A kernel without a schedule that takes longer is not timed beside the others, which would take
35 calls of it."""


@dataclass
class Chosen:
    """The schedule to hand over, and what was found out beside it.

    Parameters
    ----------
    schedule : Schedule
        The schedule.
    library : Path
        Its shared library.
    time : KernelTime
        Its time, taken beside the others.
    untuned : KernelTime | None
        The time of the kernel without a schedule; a single call of a slow one. None where it could
        not run.
    verdict : Verdict
        Of its outputs.
    wrong : list[str]
        Why other schedules were refused.
    """

    schedule: Schedule
    library: Path
    time: KernelTime
    untuned: KernelTime | None
    verdict: Verdict
    wrong: list[str]


@dataclass
class _Candidate:
    position: int
    schedule: Schedule
    library: Path
    verdict: Verdict


@dataclass
class Choice:
    """The choice among the records of a kernel.

    The fastest that are right are timed again, and one of them is handed over. Records that are
    faster than its new time are checked too: TVM's own ``compile_tir`` may apply one.

    Parameters
    ----------
    name : str
        The kernel's name.
    module : IRModule
        The kernel without a schedule.
    directory : Path
        The work directory.
    verifier : Verifier
        Checks and times.
    """

    name: str
    module: IRModule
    directory: Path
    verifier: Verifier
    _wrong: dict[int, str] = field(default_factory=dict, init=False)
    _unbuilt: list[str] = field(default_factory=list, init=False)

    def choose(self, ranked: list[tuple[int, TuningRecord]]) -> Chosen:
        """Choose among records.

        Parameters
        ----------
        ranked : list[tuple[int, TuningRecord]]
            Those with a valid time and their positions in the file, the fastest first.

        Raises
        ------
        KernelError
            If none is right, or none could be checked.
        """
        try:
            return self._choose(ranked)
        except CannotCheck as error:
            raise KernelError(
                f"the best schedules of {self.name} could not be checked: {error}. The records "
                f"are kept in {str(self.directory)!r}: run again"
            ) from error

    def _choose(self, ranked: list[tuple[int, TuningRecord]]) -> Chosen:
        expected = self.verifier.expect(self.module)
        right: list[_Candidate] = []
        left = list(ranked)
        while left and len(right) < BEST and len(self._unbuilt) < BEST:
            candidate = self._checked(*left.pop(0), expected.reason)
            if candidate is not None:
                right.append(candidate)
        if not right:
            raise self._nothing_right()
        libraries = {f"best{one.position}": one.library for one in right}
        is_quick = expected.secs <= SLOW_SECS
        if expected.library is not None and not expected.reason and is_quick:
            libraries["untuned"] = expected.library
        times = self.verifier.time(libraries)
        new = {one.position: times[f"best{one.position}"] for one in right}
        best = min(right, key=lambda one: new[one.position].secs)
        time = new[best.position]
        if not expected.reason:
            for position, record in left:
                if mean(valid_secs(record.run_secs)) < time.secs and len(self._unbuilt) < BEST:
                    self._checked(position, record, "")
        self._refuse()
        timed = {position: [known.secs] for position, known in new.items()}
        correct_times(self.directory, timed)
        untuned = times.get("untuned")
        if untuned is None and math.isfinite(expected.secs):
            untuned = KernelTime(expected.secs, expected.secs, expected.secs)
        reasons = [*self._wrong.values(), *self._unbuilt]
        return Chosen(best.schedule, best.library, time, untuned, best.verdict, reasons)

    def _checked(self, position: int, record: TuningRecord, unchecked: str) -> _Candidate | None:
        """A record that is right, or that nothing can be compared with; None for others."""
        schedule = Schedule(self.module)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        try:
            library = self.verifier.build(f"best{position}", schedule.mod)
        except TaskFailed as error:
            # It was built before: the machine's fault, so that the record stays.
            self._unbuilt.append(f"it could not be built again: {error}")
            return None
        verdict = Verdict(None, math.nan, unchecked)
        if not unchecked:
            verdict = self.verifier.check(library)
        if verdict.is_right is False:
            self._wrong[position] = verdict.reason
            return None
        return _Candidate(position, schedule, library, verdict)

    def _refuse(self) -> None:
        """Mark wrong schedules as failed, so that TVM does not apply them either."""
        correct_times(self.directory, {position: [FAILED_SECS] for position in self._wrong})

    def _nothing_right(self) -> Exception:
        self._refuse()
        if self._unbuilt:
            return CannotCheck(self._unbuilt[0])
        return KernelError(
            f"none of the {len(self._wrong)} measured schedules of {self.name} computes what the "
            f"kernel without a schedule does; the first: {next(iter(self._wrong.values()))}"
        )
