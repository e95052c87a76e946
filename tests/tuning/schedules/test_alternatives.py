# SPDX-License-Identifier: Apache-2.0
"""Near-best schedules, told apart inside the model."""

import pytest
from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.testing.te_workload import matmul
from tvm.target import Target
from tvm.te import create_prim_func
from tvm_droplet_ms.tuning.schedules.alternatives import fastest_variant, near_best, with_ranks

TARGET = Target({"kind": "llvm", "num-cores": 1})
OTHER_TARGET = Target({"kind": "llvm", "num-cores": 2})
MOD = IRModule({"main": create_prim_func(matmul(8, 8, 8))})
KEY = structural_hash(MOD)


def database_of(*secs, target=TARGET):
    """A database with a record of each time, told apart by a parallel extent in the trace."""
    database = MemoryDatabase()
    workload = database.commit_workload(MOD)
    for number, times in enumerate(secs):
        schedule = Schedule(MOD)
        schedule.annotate(schedule.get_sblock("C"), "number", number)
        database.commit_tuning_record(TuningRecord(schedule.trace, workload, times, target))
    return database


def numbers(records):
    return [
        int(str(record.trace).rpartition("ann_val=")[2].partition(")")[0]) for record in records
    ]


class TestNearBest:
    def test_ranks_those_close_to_the_best_by_their_mean(self):
        ranked = near_best(database_of([1.08], [1.2], [0.9, 1.1], [1.04]), TARGET)
        assert numbers(ranked[KEY]) == [2, 3, 0]

    def test_keeps_at_most_three(self):
        assert len(near_best(database_of(*[[1.0]] * 5), TARGET)[KEY]) == 3

    @pytest.mark.parametrize("times", [[], [1e10]])
    def test_leaves_out_failures(self, times):
        ranked = near_best(database_of(times, [1.0]), TARGET)
        assert numbers(ranked[KEY]) == [1]

    def test_leaves_out_other_targets(self):
        assert near_best(database_of([1.0], target=OTHER_TARGET), TARGET) == {}


class TestWithRanks:
    def test_takes_the_rank_asked_for_and_the_last_where_there_are_fewer(self):
        database = database_of([1.0], [1.05])
        ranked = near_best(database, TARGET)
        best = database_of([1.0])
        for rank, number in ((0, 0), (1, 1), (2, 1)):
            chosen = with_ranks(best, ranked, {KEY: rank})
            assert numbers(chosen.get_all_tuning_records()) == [number]

    def test_keeps_what_has_no_rank(self):
        chosen = with_ranks(database_of([1.0]), {}, {KEY: 1})
        assert numbers(chosen.get_all_tuning_records()) == [0]


class TestFastestVariant:
    def test_takes_the_least_median_of_each_kernel(self):
        first = {1: [1.0, 9.0, 1.0], 2: [2.0, 2.0, 2.0]}
        second = {1: [2.0, 2.0, 2.0], 2: [1.0, 1.0, 9.0]}
        assert fastest_variant([first, second]) == {1: 0, 2: 1}

    def test_the_first_wins_ties(self):
        assert fastest_variant([{1: [1.0]}, {1: [1.0]}]) == {1: 0}

    def test_kernels_that_a_variant_lacks_are_left_out(self):
        assert fastest_variant([{1: [1.0], 2: [1.0]}, {1: [0.5]}]) == {1: 1}
