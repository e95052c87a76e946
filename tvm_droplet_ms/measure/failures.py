# SPDX-License-Identifier: Apache-2.0
"""Failures as values, attributed to the candidate or to the machinery.

A candidate that cannot be built, crashes or takes too long has failed and is not tried again. A
full disk, a worker process that cannot be forked or a closed builder says nothing about the
candidate. ``WarmBuilder`` and ``PromptRunner`` try such a candidate once more. If that fails too,
they report it as not measured:

- The runner's result has an ``error_msg`` that begins with ``MACHINERY_FAILURE``, and ``run_secs``
  that are empty but not None.
- TVM's ``AddToDatabase`` stores these empty ``run_secs`` unchanged (``add_to_database.cc``). It
  stores 1e10 only if ``run_secs`` is None. ``get_top_k`` and ``query_*`` skip a record with empty
  ``run_secs`` (``TuningRecordNode::IsValid`` in ``database.cc``), and a resumed run can distinguish
  it from the record of a failed candidate.
- TVM turns a builder's ``error_msg`` into a runner's result without ``run_secs``. So a builder that
  is paired with a ``PromptRunner`` passes the failure on as the path of a nonexistent artifact
  (``failure_path``).

This file imports nothing from the package, so that every module can import it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote

FailureKind = Literal["error", "timeout", "crash", "invalid time", "machinery", "closed"]
"""Kinds of failure. The last two are the machinery's fault, all others the candidate's."""

MACHINERY_FAILURE = "machinery failure: "
"""Prefix of the error message of a candidate that the machinery failed to measure."""

TIME_LIMIT = "its time limit"
"""Last words of the message of a task that took too long."""

_MACHINERY_KINDS = ("machinery", "closed")


@dataclass(frozen=True)
class Failure:
    """The reason that a task has no result.

    Parameters
    ----------
    kind : FailureKind
        - "error": the task raised an exception.
        - "timeout": the task was killed at its time limit.
        - "crash": the task's process ended.
        - "invalid time": a measured time was not a positive number.
        - "machinery": the machinery failed; another try may succeed.
        - "closed": the builder or the runner was closed; another try would start it again.
    message : str
        The reason in words.
    """

    kind: FailureKind
    message: str

    @property
    def is_machinery(self) -> bool:
        """True if the machinery failed, not the candidate."""
        return self.kind in _MACHINERY_KINDS

    def __str__(self) -> str:
        """The error message of a builder's or a runner's result."""
        return MACHINERY_FAILURE + self.message if self.is_machinery else self.message


def is_machinery_failure(error_msg: str | None) -> bool:
    """True if the error message of a builder's or a runner's result names a machinery failure.

    Such a candidate was not measured and must not count as failed. The prefix may stand anywhere in
    the message, because another runner may quote it.
    """
    return error_msg is not None and MACHINERY_FAILURE in error_msg


def is_unmeasured(run_secs: Sequence[object] | None) -> bool:
    """True if the times of a record are empty but not None, which marks a machinery failure."""
    return run_secs is not None and len(run_secs) == 0


def failure_path(folder: str, failure: Failure) -> str:
    """Encode a failure for a runner as a nonexistent path in a folder that TVM deletes."""
    return os.path.join(folder, quote(str(failure), safe=" :,;='()[]"))


def failure_at(path: str) -> Failure | None:
    """Decode the failure in a path from ``failure_path``; None for the path of an artifact."""
    message = unquote(os.path.basename(path))
    if not message.startswith(MACHINERY_FAILURE):
        return None
    return Failure("machinery", message.removeprefix(MACHINERY_FAILURE))
