# SPDX-License-Identifier: Apache-2.0
"""Work directories joined, and refused."""

import json

import filelock
import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.session.merging import MergeError, merge_work_dirs
from tvm_droplet_ms.session.work_dir import open_work_dir


def make_run(directory, times, threads=1):
    """A run whose records are by the rows of a matrix product and a tile of its columns."""
    open_work_dir(directory, host_target(), threads)
    database = JSONDatabase(work_dir=str(directory))
    for (rows, tile), secs in times.items():
        mod = IRModule({"main": te.create_prim_func(te_workload.matmul(rows, 16, 16))})
        schedule = Schedule(mod)
        _, j, _ = schedule.get_loops(schedule.get_sblock("C"))
        schedule.split(j, [None, tile])
        workload = database.commit_workload(mod)
        database.commit_tuning_record(
            TuningRecord(schedule.trace, workload, [secs], host_target(), [])
        )
    return directory


def times_of(directory):
    """The best time of each workload, by its rows, as TVM reads it."""
    database = JSONDatabase(work_dir=str(directory))
    found = {}
    for record in database.get_all_tuning_records():
        rows = int(record.workload.mod["main"].params[0].shape[0])
        found.setdefault(rows, []).append(float(record.run_secs[0]))
    return {rows: sorted(secs) for rows, secs in found.items()}


def test_all_schedules_are_kept_once_with_their_best_time(tmp_path):
    first = make_run(tmp_path / "a", {(8, 2): 3.0, (8, 4): 1e10, (16, 2): 5.0})
    second = make_run(tmp_path / "b", {(32, 2): 7.0, (8, 4): 2.0, (8, 2): 4.0})
    merged = merge_work_dirs([first, second], tmp_path / "c")
    assert (merged.records, merged.repeated) == (4, 2)
    # The failed one stays so: its outputs may have been wrong.
    assert times_of(tmp_path / "c") == {8: [3.0, 1e10], 16: [5.0], 32: [7.0]}
    assert json.loads((tmp_path / "c" / "settings.json").read_text())["threads"] == 1
    # An earlier version wrote lists as the text of tuples. What was joined can be joined again.
    settings = json.loads((first / "settings.json").read_text())
    settings["target"]["keys"] = '("cpu",)'
    (first / "settings.json").write_text(json.dumps(settings))
    again = merge_work_dirs([tmp_path / "c", first], tmp_path / "d")
    assert (again.records, again.repeated) == (4, 3)


def test_records_with_packed_weights_are_joined(tmp_path):
    """Those of models: ``TuningRecord.as_json`` of TVM 0.27 raises at their traces."""
    runs = [make_run(tmp_path / name, {(8, 2): 1.0}) for name in "ab"]
    for run, secs in zip(runs, (3.0, 2.0), strict=True):
        database = JSONDatabase(work_dir=str(run))
        mod = IRModule({"main": te.create_prim_func(te_workload.matmul(16, 16, 16))})
        schedule = Schedule(mod)
        schedule.transform_layout(
            schedule.get_sblock("C"), ("read", 1), lambda i, j: (j // 8, i, j % 8)
        )
        record = TuningRecord(
            schedule.trace, database.commit_workload(mod), [secs], host_target(), []
        )
        database.commit_tuning_record(record)
    merged = merge_work_dirs(runs, tmp_path / "c")
    assert (merged.records, merged.repeated) == (2, 2)
    assert times_of(tmp_path / "c") == {8: [1.0], 16: [2.0]}


def test_what_is_no_directory_is_said(tmp_path):
    first = make_run(tmp_path / "a", {(8, 2): 3.0})
    with pytest.raises(MergeError, match=r"none is no directory: expected that of a run"):
        merge_work_dirs([first, tmp_path / "none"], tmp_path / "c")


def test_what_cannot_be_compared_is_refused(tmp_path):
    first = make_run(tmp_path / "a", {(8, 2): 3.0})
    other = make_run(tmp_path / "b", {(8, 2): 3.0}, threads=2)
    with pytest.raises(MergeError, match="cannot be compared"):
        merge_work_dirs([first, other], tmp_path / "c")
    newer = make_run(tmp_path / "newer", {(8, 2): 3.0})
    settings = json.loads((newer / "settings.json").read_text())
    settings["versions"]["apache-tvm"] = "0.28.0"
    (newer / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(MergeError, match="cannot be compared"):
        merge_work_dirs([first, newer], tmp_path / "c")
    with pytest.raises(MergeError, match="has records already"):
        merge_work_dirs([first], other)
    with pytest.raises(MergeError, match="no directory is given"):
        merge_work_dirs([], tmp_path / "c")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "settings.json").write_text((first / "settings.json").read_text())
    with pytest.raises(MergeError, match="has no records"):
        merge_work_dirs([first, tmp_path / "empty"], tmp_path / "c")
    path = first / "database_tuning_record.json"
    path.write_text(path.read_text()[:-10])
    with pytest.raises(MergeError, match="has a torn end: droplet-ms doctor .* --repair"):
        merge_work_dirs([first], tmp_path / "c")
    path.write_text("[0]\n")
    with pytest.raises(MergeError, match="line"):
        merge_work_dirs([first], tmp_path / "c")


@pytest.mark.parametrize("name", ["a", "b", "new"])
def test_a_directory_that_is_written_is_refused(tmp_path, name):
    """Half of its lines may be there, and records name workloads by their line."""
    sources = [make_run(tmp_path / one, {(8, 2): 3.0}) for one in ("a", "b")]
    (tmp_path / "new").mkdir()
    with filelock.FileLock(tmp_path / name / ".lock"):
        with pytest.raises(MergeError, match=f"another process tunes in '.*{name}'"):
            merge_work_dirs(sources, tmp_path / "new")
    assert not (tmp_path / "new" / "database_tuning_record.json").exists()
    # A directory that is named twice is in nobody's way.
    assert merge_work_dirs([*sources, sources[0]], tmp_path / "new").records == 1


def test_a_join_that_does_not_fit_leaves_no_records(tmp_path, monkeypatch):
    """TVM does not look whether it could write."""
    first = make_run(tmp_path / "a", {(8, 2): 3.0, (8, 4): 2.0})
    monkeypatch.setattr(JSONDatabase, "commit_tuning_record", lambda *_: None)
    with pytest.raises(MergeError, match="the 2 records could not all be written"):
        merge_work_dirs([first], tmp_path / "c")
    monkeypatch.undo()
    assert merge_work_dirs([first], tmp_path / "c").records == 2


def test_from_the_shell(tmp_path, capsys):
    first = make_run(tmp_path / "a", {(8, 2): 3.0})
    assert main(["merge", str(first), "--out", str(tmp_path / "c")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'c'}: 1 records, 0 repeated ones left out\n"
    assert main(["merge", str(first), "--out", str(tmp_path / "e"), "--json"]) == 0
    written = {"work_dir": str(tmp_path / "e"), "records": 1, "repeated": 0}
    assert json.loads(capsys.readouterr().out) == written
    assert main(["merge", str(tmp_path / "absent"), "--out", str(tmp_path / "d")]) == 1
    assert "error: " in capsys.readouterr().err
