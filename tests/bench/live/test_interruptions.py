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
"""What ``interruptions`` makes of runs whose faults are known."""

import dataclasses

import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.bench.live import interrupted_run
from tvm_droplet_ms.bench.live.interruption_report import (
    Run,
    faults_of,
    plan,
    read_rows,
    summary,
    write_row,
)
from tvm_droplet_ms.host import host_target

GOOD = Run("TERM", 3.0, 130, [0], 32, 12, 32, 0, 0, 8, 5.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"status": -15}, []),
        ({"signal": "KILL", "status": -9, "lost": 8}, []),
        ({"signal": "", "status": 0, "later": []}, []),
        ({"repeated": 2}, ["2 modules are recorded twice"]),
        ({"records": 31}, ["31 records, expected 32"]),
        ({"lost": 1}, ["1 trials are lost, expected 0 at most"]),
        ({"signal": "KILL", "status": -9, "lost": 9}, ["9 trials are lost, expected 8 at most"]),
        ({"status": 0, "before": 32, "later": []}, []),
        ({"status": 0, "later": []}, ["its exit status is 0, expected 130"]),
        ({"status": 1}, ["its exit status is 1, expected 130"]),
        ({"later": [130, 1]}, ["it did not end: the statuses are [130, 130, 1]"]),
        ({"latency_us": None}, ["it has no result"]),
    ],
)
def test_faults_are_named(change, words):
    assert list(faults_of(dataclasses.replace(GOOD, **change))) == words


def test_each_signal_has_a_third_and_more_runs_change_no_moment():
    planned = plan(0, 60, 5, 20.0)
    assert [name for name, _ in planned].count("KILL") == 20
    assert all(0.0 <= moment <= 20.0 for _, moments in planned for moment in moments)
    assert plan(0, 6, 5, 20.0) == planned[:6]
    assert plan(1, 6, 5, 20.0) != planned[:6]


def test_rows_are_read_again_without_a_torn_one(tmp_path):
    path = tmp_path / "runs.jsonl"
    assert read_rows(path) == {}
    write_row(path, "interrupted-0", GOOD)
    path.write_bytes(path.read_bytes() + b'{"key": "torn')
    assert read_rows(path) == {"interrupted-0": GOOD}
    other = dataclasses.replace(GOOD, signal="INT")
    write_row(path, "interrupted-1", other)
    assert read_rows(path) == {"interrupted-0": GOOD, "interrupted-1": other}


def test_the_summary_counts(tmp_path):
    killed = dataclasses.replace(GOOD, signal="KILL", status=-9, lost=3, latency_us=7.0)
    plain = dataclasses.replace(GOOD, signal="", status=0, later=[], latency_us=6.0)
    text = summary([GOOD, GOOD, killed], [plain, dataclasses.replace(plain, records=30)])
    assert "TERM         2 130: 2" in text
    assert "records exactly the budget: 4 of 5 runs" in text
    assert "interrupted: 3 runs, median 5 us, 5 to 7" in text
    assert text.splitlines()[-1] == "FAULT, uninterrupted: 30 records, expected 32"


def test_the_witness_counts_candidates_and_the_largest_batch(tmp_path):
    path = tmp_path / "witness"
    assert interrupted_run.read_witness(path) == (0, 0)
    path.write_text("measured\nmeasured\nbatch 2\nmeasured\nbatch 1\nmeasured\n")
    assert interrupted_run.read_witness(path) == (4, 2)


def test_a_module_that_two_traces_build_is_counted_twice(tmp_path):
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(8, 8, 8))})
    database = JSONDatabase(work_dir=str(tmp_path))
    workload = database.commit_workload(mod)
    plain, looked_at, split = Schedule(mod), Schedule(mod), Schedule(mod)
    looked_at.get_sblock("C")
    split.split(split.get_loops(split.get_sblock("C"))[0], [2, 4])
    for schedule, secs in ((plain, [1e-6]), (looked_at, [1e10]), (split, [2e-6]), (plain, [])):
        database.commit_tuning_record(
            TuningRecord(schedule.trace, workload, secs, host_target(), [])
        )
    modules = interrupted_run.recorded_modules(tmp_path)
    # The last one was not measured.
    assert len(modules) == 3 and len(set(modules)) == 2
