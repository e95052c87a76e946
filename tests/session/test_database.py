# SPDX-License-Identifier: Apache-2.0
"""Opening a work directory's database, with and without faulty lines."""

import pytest

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.target import Target
from tvm.te import create_prim_func
from tvm_droplet_ms import open_database

TARGET = Target({"kind": "llvm", "num-cores": 4})
RECORDS = "database_tuning_record.json"
WORKLOADS = "database_workload.json"


def module(extent):
    a = te.placeholder((extent,), name="A")
    b = te.compute((extent,), lambda i: a[i] * 2.0, name="B")
    return tvm.IRModule({"main": create_prim_func([a, b])})


def trace(mod, inner):
    sch = Schedule(mod, debug_mask="none")
    loop = sch.get_loops(sch.get_sblock("B"))[0]
    extent = int(sch.get(loop).extent)
    sch.split(loop, sch.sample_perfect_tile(loop, 2, decision=[extent // inner, inner]))
    return sch.trace


@pytest.fixture
def work_dir(tmp_path):
    """Two workloads and five records, one of them failed."""
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    for extent, times in [(64, [1e-3, 2e-3, 1e10]), (32, [3e-3, 4e-3])]:
        mod = module(extent)
        workload = database.commit_workload(mod)
        for step, secs in enumerate(times):
            record = TuningRecord(trace(mod, 2 << step), workload, [secs], TARGET)
            database.commit_tuning_record(record)
    return tmp_path


def lines_of(path):
    return path.read_text().splitlines()


def replace_line(path, number, line):
    """Replace a line; numbering starts at 1."""
    lines = lines_of(path)
    lines[number - 1] = line
    path.write_text("".join(f"{line}\n" for line in lines))


def contents(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def refused(work_dir, name, *numbers, intact):
    """The message for a database that cannot be opened, which names lines of a file.

    The files must stay unchanged.
    """
    before = contents(work_dir)
    with pytest.raises(ValueError) as raised:
        open_database(str(work_dir))
    assert contents(work_dir) == before
    message = str(raised.value)
    assert str(work_dir / name) in message
    assert all(f"line {number}: " in message for number in numbers)
    assert f"The other {intact} lines are intact" in message
    return message


def test_open_creates_a_new_directory(tmp_path):
    work_dir = tmp_path / "new" / "deeper"
    database = open_database(str(work_dir))
    assert isinstance(database, ms.database.JSONDatabase)
    assert len(database.get_all_tuning_records()) == 0
    workload = database.commit_workload(module(64))
    database.commit_tuning_record(TuningRecord(trace(module(64), 4), workload, [1e-3], TARGET))
    (record,) = open_database(work_dir).get_all_tuning_records()
    assert [float(sec) for sec in record.run_secs] == [1e-3]


@pytest.mark.parametrize("module_equality", ["structural", "ignore-tensor", "anchor-block"])
def test_open_leaves_a_good_database_unchanged(work_dir, module_equality):
    before = contents(work_dir)
    database = open_database(str(work_dir), module_equality)
    assert contents(work_dir) == before
    times = sorted(float(r.run_secs[0]) for r in database.get_all_tuning_records())
    assert times == [1e-3, 2e-3, 3e-3, 4e-3, 1e10]
    assert database.has_workload(module(64))
    assert not database.has_workload(module(128))


@pytest.mark.parametrize(
    ("name", "number", "line", "intact"),
    [
        (RECORDS, 5, b"[1, [[[", 4),
        (RECORDS, 5, b"\xff\xfe\x00 torn", 4),
        (WORKLOADS, 2, b"\xff\xfe\x00 torn", 1),
        (WORKLOADS, 2, b'["-12", "eyJ', 1),
    ],
)
def test_torn_or_binary_line_is_named(work_dir, name, number, line, intact):
    path = work_dir / name
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[: number - 1], line, *lines[number:], b""]))
    message = refused(work_dir, name, number, intact=intact)
    # Records name workloads by line number: deleting any but the last would misattribute them.
    assert ("delete only a torn last line" in message) is (name == WORKLOADS)
    # Following the advice repairs the database.
    if name == RECORDS:
        path.write_bytes(b"\n".join([*lines[: number - 1], *lines[number:], b""]))
        assert len(open_database(work_dir).get_all_tuning_records()) == intact


def test_nan_time_written_by_tvm_is_named(tmp_path):
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    workload = database.commit_workload(module(64))
    for secs in (1e-3, float("nan")):
        record = TuningRecord(trace(module(64), 4), workload, [secs], TARGET)
        database.commit_tuning_record(record)
    del database
    assert "nan" in refused(tmp_path, RECORDS, 2, intact=1)


def test_unreplayable_trace_is_named(work_dir):
    path = work_dir / RECORDS
    replace_line(path, 2, lines_of(path)[1].replace('"B"', '"Gone"'))
    refused(work_dir, RECORDS, 2, intact=4)


def test_record_of_missing_workload_is_named(work_dir):
    path = work_dir / WORKLOADS
    path.write_text(f"{lines_of(path)[0]}\n")
    assert "workload 1" in refused(work_dir, RECORDS, 4, 5, intact=3)


def test_every_faulty_line_is_named(work_dir):
    path = work_dir / RECORDS
    for number in (1, 3, 4):
        replace_line(path, number, "{")
    refused(work_dir, RECORDS, 1, 3, 4, intact=2)


def test_error_without_faulty_line_is_raised_unchanged(work_dir):
    before = contents(work_dir)
    with pytest.raises(Exception, match="made-up"):
        open_database(str(work_dir), "made-up")
    assert contents(work_dir) == before


def test_error_in_the_check_itself_is_raised_unchanged(work_dir, monkeypatch):
    def check(*_):
        raise AttributeError("a fault of ours")

    replace_line(work_dir / RECORDS, 2, "torn")
    monkeypatch.setattr("tvm_droplet_ms.session.database._check_record", check)
    with pytest.raises(AttributeError, match="a fault of ours"):
        open_database(work_dir)
