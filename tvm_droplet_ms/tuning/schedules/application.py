# SPDX-License-Identifier: Apache-2.0
"""The records to apply to a model: measured ones, and first picks where nothing was measured."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from tvm_ffi import get_global_func, structural_hash

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import Database, MemoryDatabase, TuningRecord
from tvm.target import Target
from tvm.tirx import PrimFunc

from ...search_strategy.published.candidates import is_for_target, mean, valid_secs
from ..picks.picks import FirstPicks

_PACKED = "_prepacked"
"""The suffix of a function whose weights SplitLayoutRewritePreproc packs."""

_UNMEASURED_SECS = 1.0
"""The time of a pick's record: TVM applies none without a time, and ranks by it."""


def is_made_up(record: TuningRecord) -> bool:
    """True if the time of a record is that of a pick which was not measured."""
    return valid_secs(record.run_secs) == (_UNMEASURED_SECS,)


def best_records(measured: Database, target: Target) -> dict[int, tuple[TuningRecord, float]]:
    """The best valid record of each workload.

    ``measured``: measured records, of any target and validity. ``target``: the target of the
    records to choose from. Returns the record of the least mean time and that time in seconds, by
    the structural hash of the workload.
    """
    best: dict[int, tuple[TuningRecord, float]] = {}
    for workload, record in _of_target(measured, target):
        secs = valid_secs(record.run_secs)
        if secs and (workload not in best or mean(secs) < best[workload][1]):
            best[workload] = record, mean(secs)
    return best


def count_trials(measured: Database, target: Target) -> Counter[int]:
    """The records of a target by the structural hash of their workload, failures included."""
    return Counter(workload for workload, _ in _of_target(measured, target))


def _of_target(measured: Database, target: Target) -> Iterator[tuple[int, TuningRecord]]:
    """The records of a target, each with the structural hash of its workload."""
    hashes: dict[object, int] = {}
    for record in measured.get_all_tuning_records():
        if is_for_target(record, target):
            if record.workload not in hashes:
                hashes[record.workload] = structural_hash(record.workload.mod)
            yield hashes[record.workload], record


def workloads_of(lowered: IRModule, names: Collection[str]) -> dict[str, int]:
    """The workloads of some compiled functions.

    Parameters
    ----------
    lowered : IRModule
        The lowered module.
    names : Collection[str]
        Names of compiled functions.

    Returns
    -------
    workloads : dict[str, int]
        By the name: the structural hash of the workload that `lowered` has under it. What packs a
        weight is none.
    """
    normalize = get_global_func("tvm.s_tir.meta_schedule.normalize_mod")
    return {
        name: structural_hash(normalize(function))
        for variable, function in lowered.functions_items()
        if isinstance(function, PrimFunc)
        for name in (variable.name_hint, variable.name_hint + _PACKED)
        if name in names
    }


def database_of(records: Iterable[TuningRecord]) -> MemoryDatabase:
    """A database of some records and their workloads."""
    database = MemoryDatabase()
    for record in records:
        database.commit_workload(record.workload.mod)
        database.commit_tuning_record(record)
    return database


def by_workload(database: Database) -> dict[int, TuningRecord]:
    """The records of a database of one for each workload, by the structural hash of these."""
    return {
        structural_hash(record.workload.mod): record for record in database.get_all_tuning_records()
    }


def database_to_apply(measured: Database, picks: FirstPicks, target: Target) -> MemoryDatabase:
    """The records for ``MetaScheduleApplyDatabase``: the fastest that was measured, or a pick.

    ``measured``: measured records, of any target and validity. ``target``: the target to apply for:
    TVM queries a database without regard to the target. The result holds, for each workload, its
    best valid record of the target, or its pick where there is no record or the pick was measured
    as faster. The time of a pick that was not measured is made up.
    """
    best = best_records(measured, target)
    chosen: list[TuningRecord] = []
    for pick in picks:
        key = structural_hash(pick.mod)
        secs = math.inf if pick.secs is None else pick.secs
        if key in best and best[key][1] <= secs:
            continue
        best.pop(key, None)
        workload = MemoryDatabase().commit_workload(pick.mod)
        times = [_UNMEASURED_SECS if pick.secs is None else pick.secs]
        chosen.append(TuningRecord(pick.trace, workload, times, target))
    return database_of([*chosen, *(record for record, _ in best.values())])
