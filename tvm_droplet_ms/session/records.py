# SPDX-License-Identifier: Apache-2.0
"""Reads the records of a work directory by line, and corrects their times.

TVM's own ``compile_tir`` applies the record with the least mean time. So the records must hold the
new times of schedules that were timed again or turned out to be wrong.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload

from .archive import replacing
from .torn_database import RECORDS, WORKLOADS

FAILED_SECS = 1e10
"""The time that TVM stores for a failure (``add_to_database.cc``)."""


def read_records(work_dir: str | os.PathLike[str]) -> list[tuple[int, TuningRecord]]:
    """Read the records of a valid database, each with its position in the file.

    ``Database.get_all_tuning_records`` would sort them by time.
    """
    paths = [Path(work_dir) / name for name in (WORKLOADS, RECORDS)]
    lines = [path.read_bytes().splitlines() if path.exists() else [] for path in paths]
    workloads = [Workload.from_json(json.loads(line)) for line in lines[0]]
    pairs = map(json.loads, lines[1])
    return [
        (position, TuningRecord.from_json(record, workloads[workload]))
        for position, (workload, record) in enumerate(pairs)
    ]


def correct_times(work_dir: str | os.PathLike[str], times: Mapping[int, Sequence[float]]) -> None:
    """Replace the times of records, by position. No other process may write the file."""
    if not times:
        return
    path = Path(work_dir) / RECORDS
    lines = path.read_bytes().splitlines()
    for position, secs in times.items():
        workload, record = json.loads(lines[position])
        record[1] = list(secs)
        lines[position] = json.dumps([workload, record]).encode()
    with replacing(path) as partial:
        partial.write_bytes(b"".join(line + b"\n" for line in lines))


def workload_hash(mod: IRModule) -> str:
    """Hash a kernel's structure without its name; the hash is the same in every process."""
    return f"{structural_hash(mod) & 0xFFFFFFFFFFFFFFFF:016x}"
