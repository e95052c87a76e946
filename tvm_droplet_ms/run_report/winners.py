# SPDX-License-Identifier: Apache-2.0
"""The fastest schedule of a task, as Python that replays."""

import json
import math
from typing import Any

from tvm.s_tir.meta_schedule.database import TuningRecord, Workload


def workload_of(line: bytes) -> Workload:
    """The workload of a line of its file."""
    return Workload.from_json(json.loads(line))


def schedule_as_python(line: bytes, workload: Workload) -> str:
    """The schedule of a record as Python; why there is none, as a comment."""
    _, record = json.loads(line)
    try:
        return str(TuningRecord.from_json(record, workload).trace)
    except Exception as error:  # TVM raises errors of many types for what it cannot read.
        return f"# This version of TVM cannot read it: {str(error).splitlines()[0]}"


def gflops(flop: float, secs: float) -> Any:
    """Billions of operations a second; None where one of the two is not known."""
    rate = flop / secs / 1e9
    return rate if math.isfinite(rate) and rate > 0 else None
