# SPDX-License-Identifier: Apache-2.0
"""The measurements of a task, less those that the machine could not make."""

from collections.abc import Iterator, Sequence

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.database import TuningRecord

from .published import candidates as published

_MACHINERY_FAILURE = "machinery failure: "
"""Begins the message of a builder or a runner that could not measure a candidate: that of
``WarmBuilder`` and ``PromptRunner``, which this room shares no code with."""


def is_unmeasured(run_secs: Sequence[object] | None, error_msg: str | None = None) -> bool:
    """True if the machine failed and not the candidate, which may be tried again.

    A failed candidate has no ``run_secs`` in its result, and one time of 1e10 in a database. A
    candidate that could not be measured has an empty list in both; or, where a builder failed so
    and TVM made the result, an error message that says it.
    """
    if error_msg is not None and _MACHINERY_FAILURE in error_msg:
        return True
    return run_secs is not None and len(run_secs) == 0


class TaskHistory(published.History):
    """The measurements of one task, and the database view that evolution sees.

    Records of candidates that could not be measured are skipped, as those of another target are.
    ``view``: the records that evolution may start from. ``ignored``: the number of skipped database
    records, by reason.
    """

    def _reason_to_skip(self, record: TuningRecord) -> str | None:
        """The reason that a record of this workload says nothing of the task; None if it does."""
        reason = super()._reason_to_skip(record)
        if reason is None and is_unmeasured(record.run_secs):
            return "could not be measured"
        return reason

    def measurements(self) -> Iterator[tuple[int, Trace, tuple[float, ...]]]:
        """Each measured module, its trace, and its times in seconds, none if it failed."""
        for module, secs in self._times.items():
            yield module, self._traces[module], secs
