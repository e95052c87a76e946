# SPDX-License-Identifier: Apache-2.0
"""The doctor's findings, each fault made here."""

import errno
import json
import re
import shutil

import filelock
import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.cli.doctor import gpu, machine, work_directory
from tvm_droplet_ms.cli.doctor.finding import Finding
from tvm_droplet_ms.cli.doctor.machine import examine_machine
from tvm_droplet_ms.cli.doctor.work_directory import examine_work_dir
from tvm_droplet_ms.cost_model import pretrained_model
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.session import cuda, database
from tvm_droplet_ms.session.records import RECORDS
from tvm_droplet_ms.session.work_dir import open_work_dir


def of_machine(subject):
    (finding,) = [finding for finding in examine_machine() if finding.subject == subject]
    return finding


def of_directory(directory, subject, **options):
    found = examine_work_dir(directory, **options)
    (finding,) = [finding for finding in found if finding.subject == subject]
    return finding


@pytest.fixture
def run(tmp_path):
    """The directory of a run with one record and one failure."""
    open_work_dir(tmp_path, host_target(), 1)
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(8, 8, 8))})
    records = JSONDatabase(work_dir=str(tmp_path))
    workload = records.commit_workload(mod)
    for secs in (1e-3, 1e10):
        records.commit_tuning_record(
            TuningRecord(Schedule(mod).trace, workload, [secs], host_target(), [])
        )
    return tmp_path


def test_this_machine_can_tune():
    findings = list(examine_machine())
    subjects = [finding.subject for finding in findings]
    assert [subject for subject in subjects if "CUDA" not in subject and subject != "GPU"] == [
        "system",
        "versions",
        "compiler",
        "threads",
        "prior",
        "noise",
        "temporary directory",
    ]
    assert not [finding for finding in findings if finding.state == "fault"]


def test_faults_of_a_machine_are_named(monkeypatch):
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    assert of_machine("system").state == "fault"
    monkeypatch.undo()
    monkeypatch.setattr(machine.shutil, "which", lambda _: None)
    assert "no candidate can be linked" in of_machine("compiler").text
    monkeypatch.undo()

    def crashing():
        raise ImportError("it crashes: pip install another one")

    monkeypatch.setattr(machine, "check_versions", crashing)
    assert of_machine("versions").remedy == "it crashes: pip install another one"
    monkeypatch.setattr(pretrained_model, "shipped_model", lambda _: None)
    assert "has learned from no CPU" in of_machine("prior").text
    monkeypatch.setattr(machine, "noise", lambda: 0.5)
    assert of_machine("noise").state == "warning"
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2, 1, 1))
    assert of_machine("temporary directory").state == "warning"


def test_without_a_gpu_there_is_one_quiet_line(monkeypatch):
    monkeypatch.setattr(gpu, "DRIVER", "libno_such_driver.so.1")
    monkeypatch.setattr(gpu, "_NODES", ())
    assert list(map(str, gpu.examine_gpu())) == ["ok       GPU: no CUDA device"]
    # A device without its library is no silence.
    monkeypatch.setattr(gpu, "_NODES", ("/dev/null",))
    (driver,) = [one for one in gpu.examine_gpu() if one.subject == "CUDA driver"]
    assert driver.state == "warning" and "libno_such_driver.so.1" in driver.text


def test_what_compiles_for_a_gpu(monkeypatch, tmp_path):
    monkeypatch.delenv(gpu.MODE, raising=False)
    monkeypatch.setattr(gpu.shutil, "which", lambda _: "/bin/nvcc")
    monkeypatch.setattr(gpu, "_has_bindings", lambda: False)
    finding = gpu._compiler()
    assert "needs the package cuda-bindings: no kernel can be compiled" in finding.text
    assert finding.remedy.endswith("or set TVM_CUDA_COMPILE_MODE=nvcc")
    monkeypatch.setattr(gpu, "_has_bindings", lambda: True)
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    assert f"NVRTC's headers are not found in {tmp_path}" in gpu._compiler().text
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_runtime.h").touch()
    assert gpu._compiler().text == f"NVRTC, with the headers in {tmp_path / 'include'}"
    monkeypatch.setenv(gpu.MODE, "nvcc")
    assert gpu._compiler().text == f"nvcc, /bin/nvcc, as {gpu.MODE} says"
    monkeypatch.setattr(gpu.shutil, "which", lambda _: None)
    assert gpu._compiler().state == "warning"


def test_a_directory_of_a_gpu_without_one(run, monkeypatch):
    monkeypatch.setattr(cuda, "why_no_device", lambda: "no driver")
    settings = json.loads((run / "settings.json").read_text())
    settings["target"] = {"kind": "cuda", "arch": "sm_90"}
    (run / "settings.json").write_text(json.dumps(settings))
    finding = of_directory(run, "target")
    assert finding.state == "warning"
    assert "tuned for cuda sm_90, and no kernel runs on a CUDA device here: no" in finding.text


def test_noise_is_the_middle_of_the_times():
    """Times of 1 to 60 seconds, whose deciles are known."""
    ticks = iter([tick for secs in range(1, 61) for tick in (0.0, float(secs))])
    deciles = (0.9 * 61, 0.1 * 61, 0.5 * 61)
    assert machine.noise(lambda: next(ticks)) == pytest.approx(
        (deciles[0] - deciles[1]) / deciles[2]
    )


def test_a_whole_directory(run):
    assert {finding.state for finding in examine_work_dir(run)} == {"ok"}
    assert of_directory(run, "database").text == "2 records, 1 of them failures"


def test_what_the_machine_let_down_is_no_failure(run):
    records = database.open_database(run)
    record = records.get_all_tuning_records()[0]
    for _ in range(2):
        records.commit_tuning_record(
            TuningRecord(record.trace, record.workload, [], host_target(), [])
        )
    assert of_directory(run, "database").text == (
        "4 records, 1 of them failures, 2 not measured because the machine failed"
    )


def test_a_torn_end_is_told_and_mended(run):
    path = run / RECORDS
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert of_directory(run, "last lines").state == "warning"
    assert of_directory(run, "database").state == "warning"
    # Looking changes nothing.
    assert path.read_bytes() == whole[:-20]
    with filelock.FileLock(run / ".lock"):
        assert of_directory(run, "writer", repair=True).state == "warning"
        assert path.read_bytes() == whole[:-20]
    assert of_directory(run, "last lines", repair=True).text == f"{RECORDS}: mended"
    assert of_directory(run, "database").text == "1 records, 0 of them failures"


def test_nobody_can_write_while_it_repairs(run, monkeypatch):
    """Else a repair cuts off, or leaves out, what another process is writing."""
    path = run / RECORDS
    path.write_bytes(b"\xff\n" + path.read_bytes()[:-20])
    was_free = []

    def trying(repair):
        def look(directory):
            lock = filelock.FileLock(run / ".lock", timeout=0)
            try:
                with lock:
                    was_free.append(True)
            except filelock.Timeout:
                was_free.append(False)
            return repair(directory)

        return look

    monkeypatch.setattr(work_directory, "mend_torn_end", trying(work_directory.mend_torn_end))
    aside = database.set_faulty_records_aside
    monkeypatch.setattr(database, "set_faulty_records_aside", trying(aside))
    findings = list(examine_work_dir(run, repair=True))
    assert was_free == [False, False]
    assert [finding.state for finding in findings if finding.subject == "database"] == ["ok"]
    # A look that repairs nothing is in nobody's way, and neither is one that has ended.
    for finding in examine_work_dir(run):
        with filelock.FileLock(run / ".lock", timeout=0):
            assert finding.state != "fault"


def test_damaged_records_are_set_aside_and_others_kept(run):
    first, second = (run / RECORDS).read_bytes().splitlines(keepends=True)
    nan = re.sub(rb"\[0\.001\d*\]", b"[NaN]", first)
    assert nan != first
    (run / RECORDS).write_bytes(b"\xff\n" + first + nan + second)
    finding = of_directory(run, "database")
    assert finding.state == "fault" and "line 1: " in finding.text and "line 3: " in finding.text
    assert "droplet-ms doctor --repair" in finding.text
    with filelock.FileLock(run / ".lock"):
        assert of_directory(run, "database", repair=True).state == "fault"
    finding = of_directory(run, "database", repair=True)
    assert finding.state == "ok"
    assert finding.text == (
        f"2 records, 1 of them failures; 2 damaged ones were moved to {RECORDS}.damaged"
    )
    assert (run / RECORDS).read_bytes() == first + second
    assert (run / f"{RECORDS}.damaged").read_bytes() == b"\xff\n" + nan
    # Records name workloads by line: none is right where one of those is damaged.
    (run / "database_workload.json").write_text("[\n")
    assert of_directory(run, "database", repair=True).state == "fault"
    assert (run / RECORDS).read_bytes() == first + second


@pytest.mark.parametrize("is_empty", [False, True])
def test_records_whose_workloads_are_lost_are_a_finding(run, is_empty):
    records = (run / RECORDS).read_bytes()
    (run / "database_workload.json").unlink()
    if is_empty:  # As an attempt to resume leaves it.
        (run / "database_workload.json").touch()
    finding = of_directory(run, "database")
    assert finding.state == "fault"
    assert finding.text.startswith("2 records, and database_workload.json, which says")
    assert of_directory(run, "database", repair=True).text == (
        f"0 records, 0 of them failures; 2 damaged ones were moved to {RECORDS}.damaged"
    )
    assert (run / f"{RECORDS}.damaged").read_bytes() == records


def test_a_damaged_line_and_another_target(run):
    lines = (run / RECORDS).read_text().splitlines()
    (run / RECORDS).write_text("\n".join(["{", *lines]) + "\n")
    finding = of_directory(run, "database")
    assert finding.state == "fault" and "line 1" in finding.text
    settings = json.loads((run / "settings.json").read_text())
    # An earlier version wrote lists as the text of tuples.
    old = {name: str(value) for name, value in host_target().export().items()}
    for own in (settings["target"], old):
        (run / "settings.json").write_text(json.dumps(settings | {"target": own}))
        assert of_directory(run, "target").state == "ok"
    settings["target"]["mcpu"] = "cortex-a72"
    (run / "settings.json").write_text(json.dumps(settings))
    assert "tuned for cortex-a72" in of_directory(run, "target").text
    (run / "settings.json").write_text("{")
    assert of_directory(run, "target").state == "fault"


@pytest.mark.parametrize("text", ['{"target": "llvm"}', '{"target": [1]}', "[]", "7", "{}", "\xff"])
def test_settings_of_another_form_are_a_finding(run, text):
    (run / "settings.json").write_text(text, encoding="latin-1")
    assert of_directory(run, "target").state == "fault"


@pytest.mark.parametrize("name", [RECORDS, "settings.json"])
def test_a_directory_in_place_of_a_file_is_a_finding(run, name):
    (run / name).unlink()
    (run / name).mkdir()
    for repair in (False, True):
        faults = [f for f in examine_work_dir(run, repair=repair) if f.state == "fault"]
        assert faults and all("Is a directory" in fault.text for fault in faults)


def test_a_file_system_that_is_read_only_is_a_finding(run, monkeypatch):
    def acquire(_lock):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    finding = of_directory(run, "writer", repair=True)
    assert (finding.state, "Read-only file system" in finding.text) == ("fault", True)


def test_no_directory(tmp_path):
    (finding,) = examine_work_dir(tmp_path / "absent")
    assert finding.state == "fault"


def test_a_finding_says_what_to_do():
    finding = Finding("disk", "warning", "full", "make room")
    assert str(finding) == "warning  disk: full\n         -> make room"


def test_from_the_shell(run, capsys):
    assert main(["doctor", str(run), "--json"]) == 0
    subjects = [finding["subject"] for finding in json.loads(capsys.readouterr().out)]
    assert "noise" in subjects and "database" in subjects
    assert main(["doctor", str(run / "absent")]) == 1
    assert "fault    work directory" in capsys.readouterr().out
    assert main(["doctor", "--repair"]) == 1
    assert "--repair mends the directory of a run: name it" in capsys.readouterr().err
