# SPDX-License-Identifier: Apache-2.0
"""The measurements of a task, without failures of the machine."""

from collections.abc import Iterator, Sequence

from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule.database import TuningRecord

from .published import candidates as published

_MACHINERY_FAILURE = "machinery failure: "
"""The prefix of the error message of ``WarmBuilder`` and ``PromptRunner`` for a candidate that the
machine could not measure. This folder shares no code with them."""


def is_unmeasured(run_secs: Sequence[object] | None, error_msg: str | None = None) -> bool:
    """True if the machine failed rather than the candidate, which may be tried again.

    A failed candidate has no ``run_secs`` in its result, and one time of 1e10 in a database. An
    unmeasured candidate has an empty list in both. If TVM made the result because the builder
    failed, the error message marks it as unmeasured.
    """
    if error_msg is not None and _MACHINERY_FAILURE in error_msg:
        return True
    return run_secs is not None and len(run_secs) == 0


class TaskHistory(published.History):
    """The measurements of one task, and the database view that evolution sees.

    Records of unmeasured candidates are skipped, like records of another target.
    ``view``: the records that evolution may start from. ``ignored``: the number of skipped database
    records, by reason.
    """

    def _reason_to_skip(self, record: TuningRecord) -> str | None:
        """The reason for skipping a record of this workload; None to keep it."""
        reason = super()._reason_to_skip(record)
        if reason is None and is_unmeasured(record.run_secs):
            return "could not be measured"
        return reason

    def measurements(self) -> Iterator[tuple[int, Trace, tuple[float, ...]]]:
        """Each measured module, its trace, and its times in seconds; no times if it failed."""
        for module, secs in self._times.items():
            yield module, self._traces[module], secs
