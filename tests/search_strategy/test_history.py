# SPDX-License-Identifier: Apache-2.0
"""Measured modules, and the view of the database for evolutionary search."""

import json
import logging
import math
import random

import pytest
from tvm_ffi import structural_equal

import tvm
from tvm import te
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.target import Target
from tvm.te import create_prim_func
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer, TaskHistory
from tvm_droplet_ms.search_strategy.published.candidates import valid_secs

TARGET = Target({"kind": "llvm", "num-cores": 4})
OTHER_TARGET = Target({"kind": "llvm", "num-cores": 8})


def module(factor, name="B"):
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] * tvm.tirx.const(factor, "float32"), name=name)
    return tvm.IRModule({"main": create_prim_func([a, b])})


MODULE = module(2.0)
OTHER_MODULE = module(3.0)


def trace(tile, mod=MODULE, block="B"):
    sch = Schedule(mod, debug_mask="none")
    loop = sch.get_loops(sch.get_sblock(block))[0]
    sch.split(loop, sch.sample_perfect_tile(loop, 2, decision=list(tile)))
    return sch.trace


TILES = [(1, 64), (2, 32), (4, 16), (8, 8), (16, 4), (32, 2)]


class Setting:
    def __init__(self, database=None):
        self.database = ms.database.MemoryDatabase() if database is None else database
        self.workload = self.database.commit_workload(MODULE)
        self.replayer = ScreenedReplayer(MODULE, [], random.Random(1))
        self.history = TaskHistory(MODULE, TARGET)

    def commit(self, tile, secs, target=TARGET):
        self.database.commit_tuning_record(TuningRecord(trace(tile), self.workload, secs, target))

    def load(self):
        self.history.load(self.database, self.replayer)
        return self.history

    def candidate(self, tile):
        return self.replayer.replay(trace(tile))


def test_valid_secs_are_positive():
    for bad in (math.nan, math.inf, -math.inf, 0.0, -0.0, -1e-3, 1e10, 1e11):
        assert valid_secs([bad]) == valid_secs([1e-3, bad]) == valid_secs([bad, 1e-3]) == ()
    assert valid_secs(None) == ()
    assert valid_secs([]) == ()
    assert valid_secs([1e-3, 2.5]) == (1e-3, 2.5)
    assert valid_secs([tvm.tirx.FloatImm("float32", 0.25)]) == (0.25,)


def test_failed_records_count_as_measured():
    setting = Setting()
    bad = [[math.nan], [0.0], [-1.0], [1e10], None]
    for tile, secs in zip(TILES, bad):
        setting.commit(tile, secs)
    setting.commit(TILES[5], [3e-3])
    history = setting.load()
    assert len(history) == 6
    assert all(setting.candidate(tile) in history for tile in TILES)
    assert [history.secs(setting.candidate(tile)) for tile in TILES] == [()] * 5 + [(3e-3,)]
    assert not history.ignored
    assert [measured.secs for measured in history.ranking()] == [(3e-3,)]
    (record,) = history.view.get_all_tuning_records()
    assert [float(sec) for sec in record.run_secs] == [3e-3]


def test_records_of_another_target_are_ignored_and_counted():
    setting = Setting()
    setting.commit(TILES[0], [1e-3], OTHER_TARGET)
    setting.commit(TILES[1], [1e10], OTHER_TARGET)
    setting.commit(TILES[2], [5e-3])
    setting.commit(TILES[3], [6e-3], None)
    history = setting.load()
    assert history.ignored == {"another target": 2}
    assert setting.candidate(TILES[0]) not in history
    assert setting.candidate(TILES[1]) not in history
    assert [measured.secs for measured in history.ranking()] == [(5e-3,), (6e-3,)]


def test_records_of_another_workload_are_skipped():
    setting = Setting()
    other = setting.database.commit_workload(OTHER_MODULE)
    setting.database.commit_tuning_record(
        TuningRecord(trace(TILES[0], OTHER_MODULE), other, [1e-6], TARGET)
    )
    setting.commit(TILES[1], [5e-3])
    history = setting.load()
    assert len(history) == 1
    assert history.best().secs == (5e-3,)
    # The other task finds its own, and only its own.
    history = TaskHistory(OTHER_MODULE, TARGET)
    history.load(setting.database, ScreenedReplayer(OTHER_MODULE, [], random.Random(1)))
    assert [measured.secs for measured in history.ranking()] == [(1e-6,)]


def test_unreplayable_records_are_skipped_counted_and_named_once(caplog):
    setting = Setting()
    gone = module(2.0, name="Gone")
    for tile in TILES[:3]:
        record = TuningRecord(trace(tile, gone, "Gone"), setting.workload, [1e-3], TARGET)
        setting.database.commit_tuning_record(record)
    setting.commit(TILES[4], [5e-3])
    with caplog.at_level(logging.WARNING, logger="tvm_droplet_ms"):
        history = setting.load()
    assert history.ignored == {"no longer replays": 3}
    assert [measured.secs for measured in history.ranking()] == [(5e-3,)]
    (warning,) = caplog.records
    assert "no longer replays" in warning.getMessage()
    # TVM's own reason is shown.
    assert "block" in warning.getMessage()
    assert "not rendered" not in warning.getMessage()


def test_view_has_valid_records_of_this_workload_and_target_only():
    setting = Setting()
    other = setting.database.commit_workload(OTHER_MODULE)
    setting.database.commit_tuning_record(
        TuningRecord(trace(TILES[0], OTHER_MODULE), other, [1e-6], TARGET)
    )
    setting.commit(TILES[0], [1e-6], OTHER_TARGET)
    setting.commit(TILES[1], [1e10])
    setting.commit(TILES[2], [2e-3])
    setting.commit(TILES[3], [4e-3])
    before = len(setting.database)
    history = setting.load()
    history.add(setting.candidate(TILES[4]), (3e-3,))
    history.add(setting.candidate(TILES[5]), ())
    assert len(setting.database) == before, "the user's database is only read"
    records = history.view.get_all_tuning_records()
    times = {tuple(float(sec) for sec in record.run_secs) for record in records}
    assert len(records) == 3
    assert times == {(2e-3,), (3e-3,), (4e-3,)}
    assert all(structural_equal(record.workload.mod, MODULE) for record in records)
    assert all(str(record.target) == str(TARGET) for record in records)
    # Evolution asks for them by its own workload token.
    token = history.view.commit_workload(MODULE)
    assert len(history.view.get_top_k(token, 10)) == 3


def test_modules_are_known_by_any_of_their_traces():
    """A different schedule leads to the same module."""
    setting = Setting()
    setting.commit(TILES[1], [1e-3])
    history = setting.load()
    sch = Schedule(MODULE, debug_mask="none")
    loop = sch.get_loops(sch.get_sblock("B"))[0]
    sch.split(loop, [2, 32])
    assert setting.replayer.replay(sch.trace) in history
    other = setting.replayer.replay(Trace([], {}))
    assert other not in history
    assert history.secs(other) == ()


def test_module_measured_again_keeps_all_its_times():
    setting = Setting()
    history, candidate = setting.history, setting.candidate(TILES[0])
    assert history.best() is None
    history.add(candidate, (4e-3,))
    history.add(setting.candidate(TILES[1]), (3e-3,))
    assert history.best().secs == (3e-3,)
    history.add(candidate, (1e-3,))
    assert len(history) == 2
    assert history.secs(candidate) == (4e-3, 1e-3)
    assert [measured.secs for measured in history.ranking()] == [(4e-3, 1e-3), (3e-3,)]
    history.add(candidate, ())
    assert history.secs(candidate) == (4e-3, 1e-3)


def test_measurements_include_failures():
    setting = Setting()
    first, second = setting.candidate(TILES[0]), setting.candidate(TILES[1])
    setting.history.add(first, ())
    setting.history.add(second, (1e-3, 2e-3))
    assert [(module, secs) for module, _, secs in setting.history.measurements()] == [
        (first.module, ()),
        (second.module, (1e-3, 2e-3)),
    ]
    assert [trace for _, trace, _ in setting.history.measurements()] == [first.trace, second.trace]


@pytest.mark.parametrize("module_equality", ["structural", "anchor-block"])
def test_json_database_still_matches_after_it_is_reopened(tmp_path, module_equality):
    def open_it():
        return ms.database.JSONDatabase(
            work_dir=str(tmp_path), module_equality=module_equality, allow_missing=True
        )

    setting = Setting(open_it())
    setting.commit(TILES[0], [2e-3, 4e-3])
    setting.commit(TILES[1], [1e10])
    setting.commit(TILES[2], [1e-3], OTHER_TARGET)
    lines = (tmp_path / "database_tuning_record.json").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 3
    reopened = Setting(open_it())
    history = reopened.load()
    assert history.ignored == {"another target": 1}
    assert len(history) == 2
    assert history.secs(reopened.candidate(TILES[0])) == (2e-3, 4e-3)
    assert reopened.candidate(TILES[1]) in history
    assert reopened.candidate(TILES[2]) not in history


def test_targets_written_in_another_order_are_one_target(tmp_path):
    """The order of a target's options is no difference between targets."""
    one = Target({"kind": "llvm", "mcpu": "generic", "num-cores": 4})
    same = Target({"num-cores": 4, "mcpu": "generic", "kind": "llvm"})
    setting = Setting(ms.database.JSONDatabase(work_dir=str(tmp_path)))
    setting.commit(TILES[0], [2e-3], one)
    history = TaskHistory(MODULE, same)
    history.load(ms.database.JSONDatabase(work_dir=str(tmp_path)), setting.replayer)
    assert len(history) == 1
    assert not history.ignored
