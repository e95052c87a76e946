# SPDX-License-Identifier: Apache-2.0
"""Chooses the schedule to return: the fastest schedule with correct outputs."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import TuningRecord

from ...measure import TaskFailed
from ...search_strategy.published.candidates import mean, valid_secs
from ...session.records import FAILED_SECS, correct_times
from .check.verification import (
    CannotCheck,
    DeviceFailed,
    Expected,
    KernelTime,
    Verdict,
    Verifier,
)
from .errors import KernelError

BEST = 5
"""Number of schedules to check and time again together: a single measurement may be lucky."""

MOST_GROUPS = 4
"""Maximum number of groups of schedules to time again. Another group follows if records are faster
than the new time of the best."""

SLOW_SECS = 0.5
"""An unscheduled kernel that takes more seconds than this is not timed along with the schedules:
that would take 28 calls."""

_Ranked = tuple[int, TuningRecord]


@dataclass
class Chosen:
    """The schedule to return, and further results.

    - ``untuned``: the time of the unscheduled kernel; None if it could not run.
    - ``wrong``: the reasons that other schedules were refused.
    - ``unchecked``: the reasons that other schedules could not be checked, or the best could not be
      timed again. These are not the schedules' fault.
    - ``is_untuned``: whether this is the unscheduled kernel, because no schedule is faster.
    """

    schedule: Schedule
    library: Path
    time: KernelTime
    untuned: KernelTime | None
    verdict: Verdict
    wrong: list[str]
    unchecked: list[str]
    is_untuned: bool = False


@dataclass
class _Candidate:
    position: int
    schedule: Schedule
    library: Path
    verdict: Verdict
    run_secs: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"best{self.position}"

    @property
    def recorded(self) -> KernelTime:
        """The candidate's time during the tuning, for when it cannot be timed again."""
        return KernelTime(mean(self.run_secs), min(self.run_secs), max(self.run_secs))


def _position(name: str) -> int:
    return int(name.removeprefix("best"))


def _faster(ranked: list[_Ranked], time: KernelTime) -> list[_Ranked]:
    """Select the records that are faster than a time."""
    return [row for row in ranked if mean(valid_secs(row[1].run_secs)) < time.secs]


@dataclass
class Choice:
    """Chooses among the records of a kernel.

    The fastest correct schedules are timed again. Records that are faster than the new time of the
    best are then timed with it, until no such record is left or the groups are used up. TVM's own
    ``compile_tir`` applies the record with the least time, so it applies the returned schedule. If
    the unscheduled kernel is faster than the best schedule, it is returned instead.
    """

    name: str
    module: IRModule
    directory: Path
    verifier: Verifier
    _wrong: dict[int, str] = field(default_factory=dict, init=False)
    _unchecked: list[str] = field(default_factory=list, init=False)
    _expected: Expected = field(default=Expected(None, "", math.nan), init=False)

    def choose(self, ranked: list[_Ranked]) -> Chosen:
        """Choose among valid records, given with their positions in the file, the fastest first.

        Raises ``KernelError`` if no schedule is correct, or none could be checked.
        """
        try:
            return self._choose(ranked)
        except CannotCheck as error:
            if error.is_crash and self._expected.reason:
                raise KernelError(
                    f"{self.name} ends its process on the values of its arguments, also without a "
                    f"schedule: {self._expected.reason}. {self.verifier.advice}"
                ) from error
            raise KernelError(
                f"the best schedules of {self.name} could not be checked: {error}. The records "
                f"are kept in {str(self.directory)!r}: run again"
            ) from error
        finally:
            self._refuse()

    def _choose(self, ranked: list[_Ranked]) -> Chosen:
        expected = self._expected = self.verifier.expect(self.module)
        left = list(ranked)
        group = self._right(left)
        if not group:
            raise self._nothing_right()
        libraries: dict[str, Path] = {}
        is_quick = expected.secs <= SLOW_SECS
        if expected.library is not None and not expected.reason and is_quick:
            libraries["untuned"] = expected.library
        best, times = self._timed(group, left, libraries)
        lucky = {}
        for position, record in _faster(left, times[best.name]):
            # These records can no longer be timed, but TVM may apply one.
            if not expected.reason and len(self._unchecked) < BEST:
                if self._checked(position, record) is None:
                    continue
            lucky[position] = [math.nextafter(times[best.name].secs, math.inf)]
        correct_times(self.directory, lucky)
        untuned = times.pop("untuned", None)
        correct_times(
            self.directory, {_position(name): [known.secs] for name, known in times.items()}
        )
        if untuned is None and math.isfinite(expected.secs):
            untuned = KernelTime(expected.secs, expected.secs, expected.secs)
        reasons = (list(self._wrong.values()), self._unchecked)
        if untuned is not None and expected.library is not None:
            if untuned.secs < times[best.name].secs:
                # If the outputs could not be compared, that verdict holds here too.
                verdict = best.verdict
                if verdict.is_right:
                    verdict = Verdict(True, 0.0, verdict.reason)
                schedule = Schedule(self.module)
                return Chosen(schedule, expected.library, untuned, untuned, verdict, *reasons, True)
        time = times[best.name]
        return Chosen(best.schedule, best.library, time, untuned, best.verdict, *reasons)

    def _right(self, left: list[_Ranked]) -> list[_Candidate]:
        """Take the fastest correct schedules from ``left``, at most ``BEST``."""
        right: list[_Candidate] = []
        while left and len(right) < BEST and len(self._unchecked) < BEST:
            candidate = self._checked(*left.pop(0))
            if candidate is not None:
                right.append(candidate)
        return right

    def _timed(
        self,
        group: list[_Candidate],
        left: list[_Ranked],
        libraries: dict[str, Path],
    ) -> tuple[_Candidate, dict[str, KernelTime]]:
        """Time one group after the other.

        Returns the best candidate and the last time of each library. If a GPU fails, these are the
        times so far, or the times of the tuning if there are none.
        """
        known: dict[str, _Candidate] = {}
        times: dict[str, KernelTime] = {}
        for turn in range(MOST_GROUPS):
            known |= {one.name: one for one in group}
            try:
                times |= self._time({one.name: one.library for one in group} | libraries)
            except DeviceFailed as error:
                self._unchecked.append(f"the best were not timed again: {error}")
                times = times or {one.name: one.recorded for one in group}
                timed = [one for one in known.values() if one.name in times]
                return min(timed, key=lambda one: times[one.name].secs), times
            known = {name: one for name, one in known.items() if one.position not in self._wrong}
            times = {name: times[name] for name in times if name in known or name in libraries}
            if not known:
                group = self._right(left)
                if not group or turn + 1 == MOST_GROUPS:
                    raise self._nothing_right()
                continue
            best = min(known.values(), key=lambda one: times[one.name].secs)
            if turn + 1 == MOST_GROUPS:
                break
            faster = _faster(left, times[best.name])
            left[:] = [row for row in left if row not in faster]
            found = self._right(faster)
            left[:0] = faster
            if not found:
                break
            group = [best, *found]
        return best, times

    def _time(self, libraries: dict[str, Path]) -> dict[str, KernelTime]:
        """Time libraries, and refuse schedules that crash when they are timed alone.

        If the unscheduled kernel crashes too, no schedule is refused and the error is raised.
        """
        try:
            return self.verifier.time(libraries)
        except CannotCheck as error:
            # If the unscheduled kernel did not run either, it is not the schedules' fault.
            if not error.is_crash or self._expected.reason:
                raise
            crash = error
        alone, crashed = {}, {}
        for name, library in libraries.items():
            try:
                self.verifier.time({name: library})
                alone[name] = library
            except CannotCheck as error:
                if not error.is_crash:
                    raise
                crashed[name] = str(error)
        if not crashed or "untuned" in crashed:
            raise crash
        self._wrong |= {_position(name): reason for name, reason in crashed.items()}
        return self._time(alone) if alone else {}

    def _checked(self, position: int, record: TuningRecord) -> _Candidate | None:
        """Build and check a record.

        Returns a candidate if its outputs are correct or cannot be compared; None otherwise.
        """
        schedule = Schedule(self.module)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        try:
            library = self.verifier.build(f"best{position}", schedule.mod)
        except TaskFailed as error:
            # It was built before, so the machine is at fault: keep the record.
            self._unchecked.append(f"it could not be built again: {error}")
            return None
        verdict = Verdict(None, math.nan, self._expected.reason)
        if not self._expected.reason:
            try:
                verdict = self.verifier.check(library)
            except DeviceFailed as error:
                # It ran before: keep the record.
                self._unchecked.append(f"it did not run again: {error}")
                return None
        if verdict.is_right is False:
            self._wrong[position] = verdict.reason
            return None
        return _Candidate(position, schedule, library, verdict, valid_secs(record.run_secs))

    def _refuse(self) -> None:
        """Mark wrong schedules as failed, so that TVM does not apply them either."""
        correct_times(self.directory, {position: [FAILED_SECS] for position in self._wrong})

    def _nothing_right(self) -> Exception:
        if self._unchecked:
            return CannotCheck(self._unchecked[0])
        return KernelError(
            f"none of the {len(self._wrong)} measured schedules of {self.name} computes what the "
            f"kernel without a schedule does; the first: {next(iter(self._wrong.values()))}"
        )
