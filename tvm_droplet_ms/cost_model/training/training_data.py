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
"""Measurements of many workloads, to learn from."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm_ffi import structural_hash

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.target import Target

from ..boosted_trees import relative_throughput
from ..features.program_features import Extractor, ProgramFeatures

_FAILED_SECS = 1e10
"""What TVM's ``AddToDatabase`` stores for a failed measurement (``add_to_database.cc``)."""

_AT_ONCE = 64
"""How many programs to extract features of at once, which bounds the memory they take."""


class TrainingDataError(ValueError):
    """Measurements that no model should learn from together; the message says why."""


@dataclass(frozen=True)
class MeasuredWorkload:
    """The measurements of one workload on one target.

    Parameters
    ----------
    name : str
        For messages; in a database, the workload's structural hash.
    target : str
        The target, as JSON with sorted keys.
    features : np.ndarray
        Those of each program, of shape ``(programs, width)`` of the extractor, float32.
    secs : np.ndarray
        Their times in seconds, of shape ``(programs,)``; infinity for a failure.
    """

    name: str
    target: str
    features: np.ndarray
    secs: np.ndarray

    @property
    def throughput(self) -> np.ndarray:
        """The best time over each, of shape ``(programs,)``."""
        return relative_throughput(self.secs)


def target_text(target: Target) -> str:
    """A target as text that is the same for equal targets, whatever the order of attributes."""
    return json.dumps(json.loads(str(target)), sort_keys=True)


def read_database(
    database: Database, *, extractor: Extractor | None = None
) -> list[MeasuredWorkload]:
    """What a MetaSchedule database holds, its features computed again from the stored traces.

    Parameters
    ----------
    database : Database
        With records of one workload or several.
    extractor : Extractor | None
        What makes the features; None for ``ProgramFeatures``.

    Returns
    -------
    workloads : list[MeasuredWorkload]
        One for each workload and target, in the order of the records.

    Raises
    ------
    TrainingDataError
        If a record names no target.
    """
    groups: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in database.get_all_tuning_records():
        name = f"{structural_hash(record.workload.mod) % (1 << 64):016x}"
        if record.target is None:
            raise TrainingDataError(
                f"a record of workload {name} names no target, and may have been measured on any; "
                "remove it"
            )
        groups.setdefault((name, target_text(record.target)), []).append(record)
    used = extractor or ProgramFeatures()
    return [_workload(name, target, group, used) for (name, target), group in groups.items()]


def _workload(
    name: str, target: str, records: Sequence[TuningRecord], extractor: Extractor
) -> MeasuredWorkload:
    context = TuneContext(records[0].workload.mod, target=records[0].target, num_threads=1)
    parts = []
    for start in range(0, len(records), _AT_ONCE):
        candidates = [_candidate(record) for record in records[start : start + _AT_ONCE]]
        parts.append(extractor.extract(context, candidates))
    secs = np.array([_secs(record) for record in records])
    return MeasuredWorkload(name, target, np.concatenate(parts), secs)


def _candidate(record: TuningRecord) -> MeasureCandidate:
    schedule = Schedule(record.workload.mod, debug_mask="none", error_render_level="fast")
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    return MeasureCandidate(schedule, ArgInfo.from_entry_func(schedule.mod, remove_preproc=True))


def _secs(record: TuningRecord) -> float:
    """The median time, as MetaSchedule's model takes it; infinity for a failure."""
    times = np.array([float(sec) for sec in record.run_secs or ()])
    valid = len(times) > 0 and bool(np.all(np.isfinite(times) & (times > 0)))
    median = float(np.median(times)) if valid else np.inf
    return median if median < _FAILED_SECS else np.inf


def select_target(
    workloads: Iterable[MeasuredWorkload], target: str | None = None
) -> list[MeasuredWorkload]:
    """The workloads of one target: times of different machines do not compare.

    Parameters
    ----------
    workloads : Iterable[MeasuredWorkload]
        Of any targets.
    target : str | None
        The target whose to take, by its text or a part of it that no other has; None where there
        is only one.

    Raises
    ------
    TrainingDataError
        If there is nothing, or of several targets none was chosen; lists them.
    """
    groups: dict[str, list[MeasuredWorkload]] = {}
    for workload in workloads:
        groups.setdefault(workload.target, []).append(workload)
    chosen = [text for text in groups if target is None or target in text]
    if len(chosen) == 1:
        return groups[chosen[0]]
    if not groups:
        raise TrainingDataError("there are no records to learn from")
    listed = "; ".join(
        f"{sum(len(one.secs) for one in group)} records of {text}" for text, group in groups.items()
    )
    reason = f"{len(groups)} targets" if target is None else f"{len(chosen)} like {target!r}"
    raise TrainingDataError(
        f"expected records of one target, found {reason}: {listed}; choose with --target, by a "
        "part of the text that only one has, and add --mix-targets to learn from all"
    )
