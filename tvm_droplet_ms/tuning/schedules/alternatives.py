# SPDX-License-Identifier: Apache-2.0
"""Schedules of a kernel that are about as fast, to be told apart inside the model.

A kernel is measured alone, with warm caches and by one or a few repeats. Inside the model the order
of the best may be another one.
"""

from collections.abc import Mapping, Sequence
from math import fsum
from statistics import median

from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule.database import Database, MemoryDatabase, TuningRecord
from tvm.target import Target

from ...search_strategy.published.candidates import is_for_target, valid_secs
from .application import database_of

NEAR = 1.1
"""Schedules are told apart again within this many times the time of the best: twice the noise of a
single measurement."""

MOST = 3
"""The most schedules of a kernel that are told apart: each takes a build of the model."""

Ranked = dict[int, list[TuningRecord]]


def near_best(database: Database, target: Target) -> Ranked:
    """The best measured schedules of each workload.

    ``database``: measured records, of any target and validity. Returns, by the structural hash of
    the workload, at most ``MOST`` records within ``NEAR`` of the best, the best first.
    """
    timed: dict[int, list[tuple[float, int, TuningRecord]]] = {}
    for record in database.get_all_tuning_records():
        secs = valid_secs(record.run_secs)
        if secs and is_for_target(record, target):
            key = structural_hash(record.workload.mod)
            records = timed.setdefault(key, [])
            records.append((fsum(secs) / len(secs), len(records), record))
    ranked: Ranked = {}
    for key, records in timed.items():
        records.sort(key=lambda entry: entry[:2])
        limit = NEAR * records[0][0]
        ranked[key] = [record for secs, _, record in records[:MOST] if secs <= limit]
    return ranked


def with_ranks(schedules: Database, ranked: Ranked, ranks: Mapping[int, int]) -> MemoryDatabase:
    """The schedules of a model, with other ones for some of its kernels.

    ``schedules``: one record for each workload. ``ranked``: the choices; see ``near_best``.
    ``ranks``: the rank to take for a workload, by its hash; the last one where there are fewer.
    Returns one record for each workload.
    """
    chosen = []
    for record in schedules.get_all_tuning_records():
        key = structural_hash(record.workload.mod)
        # The schedule that the model has may be a measured pick, of which there is no record.
        if ranks.get(key) and key in ranked:
            record = ranked[key][min(ranks[key], len(ranked[key]) - 1)]
        chosen.append(record)
    return database_of(chosen)


def fastest_variant(secs: Sequence[Mapping[int, Sequence[float]]]) -> dict[int, int]:
    """The variant in which each kernel is fastest.

    ``secs``: for each variant of the model: the seconds of each kernel in each run, by its hash.
    Returns the variant with the least median, for each kernel that all variants have; the first of
    equals.
    """
    kernels = set(secs[0]).intersection(*secs[1:])
    return {
        key: min(range(len(secs)), key=lambda variant: median(secs[variant][key]))
        for key in kernels
    }
