# SPDX-License-Identifier: Apache-2.0
"""The schedules of a compiled model: measured, picked, or chosen inside the model."""

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from tvm_ffi import get_global_func, structural_hash

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import Database, MemoryDatabase, TuningRecord
from tvm.target import Target
from tvm.tirx import PrimFunc

from ..search_strategy.published.candidates import is_for_target, mean, valid_secs
from ..session.archive import replacing
from ..session.work_dir import SCHEDULES
from .picks.picks import FirstPick, FirstPicks

logger = logging.getLogger(__name__)

NEAR = 1.1
"""Schedules within this factor of the best time are compared again. The margin is twice the noise
of a single measurement."""

MOST = 3
"""The maximum number of schedules of a kernel to compare: each takes a build of the model."""

CHOICE = "inside_choice.json"
"""A file of the work directory: schedule digests by the structural hash of the workload."""

Ranked = dict[int, list[TuningRecord]]

PACKED = "_prepacked"
"""The suffix of a function whose weights SplitLayoutRewritePreproc packs."""

_UNMEASURED_SECS = 1.0
"""The placeholder time of an unmeasured pick: TVM needs a time to apply and rank a record."""


def is_made_up(record: TuningRecord) -> bool:
    """Return whether a record has the placeholder time of an unmeasured pick."""
    return valid_secs(record.run_secs) == (_UNMEASURED_SECS,)


def best_records(measured: Database, target: Target) -> dict[int, tuple[TuningRecord, float]]:
    """Return the fastest valid record and its mean seconds, by the hash of the workload."""
    timed = timed_records(measured, target)
    return {workload: (pairs[0][1], pairs[0][0]) for workload, pairs in timed.items()}


def timed_records(
    measured: Database, target: Target
) -> dict[int, list[tuple[float, TuningRecord]]]:
    """Return the mean seconds and valid records of each workload of a target, the fastest first."""
    timed: dict[int, list[tuple[float, TuningRecord]]] = {}
    for workload, record in _of_target(measured, target):
        if secs := valid_secs(record.run_secs):
            timed.setdefault(workload, []).append((mean(secs), record))
    for pairs in timed.values():
        pairs.sort(key=lambda pair: pair[0])
    return timed


def count_trials(measured: Database, target: Target) -> Counter[int]:
    """Count the records of a target by the structural hash of the workload, with failures."""
    return Counter(workload for workload, _ in _of_target(measured, target))


def _of_target(measured: Database, target: Target) -> Iterator[tuple[int, TuningRecord]]:
    """Yield the records of a target, each after the structural hash of its workload."""
    hashes: dict[object, int] = {}
    for record in measured.get_all_tuning_records():
        if is_for_target(record, target):
            if record.workload not in hashes:
                hashes[record.workload] = structural_hash(record.workload.mod)
            yield hashes[record.workload], record


def workloads_of(lowered: IRModule, names: Collection[str]) -> dict[str, int]:
    """Return the workload hash of each named function, except for weight-packing functions."""
    normalize = get_global_func("tvm.s_tir.meta_schedule.normalize_mod")
    return {
        name: structural_hash(normalize(function))
        for variable, function in lowered.functions_items()
        if isinstance(function, PrimFunc)
        for name in (variable.name_hint, variable.name_hint + PACKED)
        if name in names
    }


def database_of(records: Iterable[TuningRecord]) -> MemoryDatabase:
    """Return a database of the records and their workloads."""
    database = MemoryDatabase()
    for record in records:
        database.commit_workload(record.workload.mod)
        database.commit_tuning_record(record)
    return database


def by_workload(database: Database) -> dict[int, TuningRecord]:
    """Return a database's records by the workload's structural hash; each workload has one."""
    return {
        structural_hash(record.workload.mod): record for record in database.get_all_tuning_records()
    }


def database_to_apply(measured: Database, picks: FirstPicks, target: Target) -> MemoryDatabase:
    """Return the records for ``MetaScheduleApplyDatabase``: the fastest measured one, or a pick.

    TVM queries a database without regard to the target. A pick is taken if there is no record or
    the pick was measured as faster. An unmeasured pick gets a placeholder time.
    """
    best = best_records(measured, target)
    chosen: list[TuningRecord] = []
    for pick in picks:
        key = structural_hash(pick.mod)
        secs = math.inf if pick.secs is None else pick.secs
        if key in best and best[key][1] <= secs:
            continue
        best.pop(key, None)
        chosen.append(record_of(pick, target))
    return database_of([*chosen, *(record for record, _ in best.values())])


def record_of(pick: FirstPick, target: Target) -> TuningRecord:
    """Return the record that applies a pick."""
    workload = MemoryDatabase().commit_workload(pick.mod)
    times = [_UNMEASURED_SECS if pick.secs is None else pick.secs]
    return TuningRecord(pick.trace, workload, times, target)


def near_best(database: Database, target: Target) -> Ranked:
    """Return the best records of each workload by structural hash, the fastest first.

    These are at most ``MOST`` records, within a factor ``NEAR`` of the best.
    """
    return {
        key: [record for secs, record in pairs[:MOST] if secs <= NEAR * pairs[0][0]]
        for key, pairs in timed_records(database, target).items()
    }


def with_ranks(schedules: Database, ranked: Ranked, ranks: Mapping[int, int]) -> MemoryDatabase:
    """Return a model's schedules, replaced for each kernel with a rank by its ranked choice.

    A rank beyond the last choice takes the last one.
    """
    chosen = []
    for record in schedules.get_all_tuning_records():
        key = structural_hash(record.workload.mod)
        # The model's schedule may be a measured pick, which has no record.
        if ranks.get(key) and key in ranked:
            record = ranked[key][min(ranks[key], len(ranked[key]) - 1)]
        chosen.append(record)
    return database_of(chosen)


def fastest_variant(secs: Sequence[Mapping[int, Sequence[float]]]) -> dict[int, int]:
    """Return the fastest variant by median of each kernel in all variants; the first on ties.

    ``secs``: for each variant, the seconds of each kernel in each run.
    """
    kernels = set(secs[0]).intersection(*secs[1:])
    return {
        key: min(range(len(secs)), key=lambda variant: median(secs[variant][key]))
        for key in kernels
    }


def keep_choice(directory: Path, chosen: Mapping[int, TuningRecord]) -> None:
    """Write the choice by workload hash. Earlier choices for other workloads stay."""
    _add(directory / CHOICE, {str(key): _digest(record) for key, record in chosen.items()})


def kept_choice(directory: Path, database: Database, target: Target) -> dict[int, TuningRecord]:
    """Return the chosen schedules that are still near-best, by workload hash."""
    digests = _read(directory / CHOICE)
    if not digests:
        return {}
    return {
        key: record
        for key, records in near_best(database, target).items()
        for record in records
        if digests.get(str(key)) == _digest(record)
    }


def keep_schedules(directory: Path, schedules: Mapping[str, str]) -> None:
    """Write the schedules in use as Python, by kernel name; a full disk is a warning.

    Those of other shapes stay.
    """
    try:
        _add(directory / SCHEDULES, schedules)
    except OSError as error:
        logger.warning("%s is not up to date: %s", SCHEDULES, error)


def _add(path: Path, content: Mapping[str, str]) -> None:
    with replacing(path) as partial:
        partial.write_text(
            json.dumps({**_read(path), **content}, indent=1) + "\n", encoding="utf-8"
        )


def _read(path: Path) -> dict[str, str]:
    """Return the content of a file; empty if it is missing or malformed."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _digest(record: TuningRecord) -> str:
    return hashlib.sha256(str(record.trace).encode()).hexdigest()
