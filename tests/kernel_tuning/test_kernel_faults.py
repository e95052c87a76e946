# SPDX-License-Identifier: Apache-2.0
"""The user of ``tune_kernel`` sees what fails, and nothing is lost.

``tests/test_fault_table.py`` names these tests.
"""

import json
import os
import resource
import signal
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from conformance.workloads import Reject
from made_up_measuring import quick_tune

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.measure import PromptRunner, TaskFailed, fast_measure
from tvm_droplet_ms.measure.failures import MACHINERY_FAILURE
from tvm_droplet_ms.session.records import RECORDS
from tvm_droplet_ms.tuning.kernel import KernelError, KernelInterrupted
from tvm_droplet_ms.tuning.kernel import measuring as kernel_measuring
from tvm_droplet_ms.tuning.kernel.check import verification

MATMUL = IRModule({"main": te.create_prim_func(te_workload.matmul(16, 16, 16))})


tune = partial(quick_tune, MATMUL)


def lines(work_dir):
    return (work_dir / RECORDS).read_bytes().splitlines()


def assert_each_schedule_is_recorded_once(work_dir, trials):
    traces = [json.dumps(json.loads(line)[1][0]) for line in lines(work_dir)]
    assert len(traces) == len(set(traces)) == trials


# Kernels.


def with_faults(markers):
    """An evaluator with each fault once, in the order of the files that ask for it."""
    path = str(markers)

    # By value to the worker, which cannot import this file.
    def evaluate(module, device, config, arguments):
        import os
        import signal
        import time

        from tvm.s_tir.meta_schedule.runner.utils import run_evaluator_common

        for fault in ("hang", "crash", "memory"):
            marker = os.path.join(path, fault)
            if os.path.exists(marker):
                os.unlink(marker)
                if fault == "hang":
                    time.sleep(1000)
                elif fault == "crash":
                    os.kill(os.getpid(), signal.SIGSEGV)
                else:
                    bytearray(1 << 60)
        return run_evaluator_common(module, device, config, arguments)

    return evaluate


def test_kernels_that_hang_crash_and_run_out_of_memory(tmp_path, monkeypatch, measuring):
    for fault in ("hang", "crash", "memory"):
        (tmp_path / fault).write_text("")

    def measure(target, **options):
        parts = fast_measure(target, **options)
        parts["runner"] = PromptRunner(timeout_sec=5.0, f_run_evaluator=with_faults(tmp_path))
        return parts

    monkeypatch.setattr(kernel_measuring, "fast_measure", measure)
    result = tune(tmp_path / "logs", trials=6)
    shown = str(result)
    assert "1 failed: PromptRunner: killed after 5 s, its time limit" in shown
    assert "1 failed: PromptRunner: its process was ended by SIGSEGV" in shown
    assert "1 failed: PromptRunner: out of memory within the worker's limit" in shown
    assert result.verified and result.trials == 6
    times = [json.loads(line)[1][1] for line in lines(tmp_path / "logs")]
    assert times.count([1e10]) == 3 and len(times) == 6


def test_a_progress_that_cannot_be_written_ends_no_run(tmp_path, measuring, caplog):
    def broken(_line):
        raise BrokenPipeError("nobody reads")

    assert tune(tmp_path, trials=4, progress=broken).trials == 4
    assert "the end of the progress is not shown: nobody reads" in caplog.messages


def test_all_builds_fail(tmp_path, measuring):
    measuring(error="LLVM: no such intrinsic\nand more")
    words = "could be measured for .*: all 4 failed; the first: LLVM: no such intrinsic$"
    with pytest.raises(KernelError, match=words):
        tune(tmp_path)
    assert len(lines(tmp_path)) == 4
    # They are not built again.
    with pytest.raises(KernelError, match="all 4 schedules of kernel in .* failed: pass more"):
        tune(tmp_path)
    measuring()
    result = tune(tmp_path, trials=6)
    assert (result.known_trials, result.trials) == (4, 2)
    assert_each_schedule_is_recorded_once(tmp_path, 6)


# Spaces.


def test_an_empty_space_ends_in_words(tmp_path, measuring):
    space = ms.space_generator.ScheduleFn(lambda _: [])
    with pytest.raises(KernelError, match="design_spaces is empty, expected at least one"):
        tune(tmp_path, space=space)


def test_postprocessors_that_reject_all_are_named(tmp_path, measuring, caplog):
    space = ms.space_generator.PostOrderApply(
        sch_rules="from-target", postprocs=[Reject()], mutator_probs={}
    )
    with pytest.raises(KernelError, match="the search proposed none, because"):
        tune(tmp_path, space=space)
    assert any("found no candidate to measure" in text for text in caplog.messages)


# Disks and directories.


@contextmanager
def files_of_at_most(size):
    """Files that grow no further, as on a full disk; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_records_that_do_not_reach_a_full_disk(tmp_path, measuring):
    tune(tmp_path, trials=2)
    size = (tmp_path / RECORDS).stat().st_size
    with files_of_at_most(5 * size // 2):
        with pytest.raises(KernelError, match="records could not be written to") as raised:
            tune(tmp_path, trials=64)
    found = len([line for line in lines(tmp_path) if line.endswith(b"]")])
    assert f"The other {(tmp_path / RECORDS).read_bytes().count(bytes([10]))} are" in str(
        raised.value
    )
    assert 2 < found <= 6
    # The run ends after the next batch, and not after 64 trials.
    assert int(str(raised.value).split(" of ")[1].split()[0]) < 64
    said = []
    result = tune(tmp_path, trials=8, progress=said.append)
    assert said[0] == f"kernel: the torn last line of {RECORDS} was cut off"
    assert result.trials + result.known_trials == 8
    assert_each_schedule_is_recorded_once(tmp_path, 8)


def test_a_full_temporary_directory_spends_no_trials(tmp_path, measuring):
    words = f"{MACHINERY_FAILURE}OSError: [Errno 28] No space left on device"
    measuring([RunnerResult([], words)])
    with pytest.raises(KernelError, match="all 4 failed; the first: .*No space left on device"):
        tune(tmp_path)
    measuring()
    result = tune(tmp_path)
    assert (result.known_trials, result.trials) == (0, 4)
    measuring([RunnerResult([], words), RunnerResult([1e-6], None)])
    assert tune(tmp_path, trials=8).trials == 2


def test_a_full_disk_while_checking_marks_no_record(tmp_path, measuring, monkeypatch):
    def full(*_):
        raise TaskFailed("error", "OSError: [Errno 28] No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(verification.Verifier, "build", full)
        with pytest.raises(KernelError, match="could not be checked: .*No space left.*run again"):
            tune(tmp_path)
    times = [json.loads(line)[1][1] for line in lines(tmp_path)]
    assert [1e10] not in times and len(times) == 4
    assert tune(tmp_path).verified
    assert not list(tmp_path.glob("check_*"))


@pytest.fixture
def read_only():
    """A directory that cannot be written, also where the tests run as root."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        directory = Path(folder, "logs")
        directory.mkdir(mode=0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield directory
        finally:
            os.seteuid(user)


def test_a_read_only_directory(read_only):
    words = "cannot be used: .*Permission denied.*permit writing there.*or pass another work_dir"
    with pytest.raises(KernelError, match=words):
        tune(read_only)


@pytest.fixture
def unsearchable(tmp_path, monkeypatch):
    """A current directory that only its owner may search."""
    directory = tmp_path / "private"
    directory.mkdir(mode=0o700)
    monkeypatch.chdir(directory)


def test_a_read_only_directory_from_the_shell(unsearchable, read_only, capsys):
    assert main(["tune", "dense", "--work-dir", str(read_only)]) == 1
    words = capsys.readouterr().err
    assert words.startswith("droplet-ms tune: error: [Errno 13] Permission denied: ")
    assert words.endswith("permit writing there, or pass another --work-dir\n")


# Records.


def damage(work_dir, name):
    path = work_dir / RECORDS
    workload, record = json.loads(lines(work_dir)[1])
    if name == "NaN":
        record[1] = [float("nan")]
    elif name == "unreplayable":
        record[0][0][0][0] = "NoSuchInstruction"
    line = json.dumps([workload, record]).encode() if name != "text" else b"\xff no JSON"
    changed = lines(work_dir)
    changed[1] = line
    path.write_bytes(b"".join(line + b"\n" for line in changed))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("text", "line 2: .*codec can't decode"),
        ("NaN", "line 2: a time of nan seconds"),
        ("unreplayable", "line 2: .*NoSuchInstruction"),
    ],
)
def test_a_damaged_record_is_named_and_left_alone(tmp_path, measuring, name, words):
    tune(tmp_path)
    damage(tmp_path, name)
    before = lines(tmp_path)
    with pytest.raises(KernelError, match=f"{RECORDS} cannot be opened: {words}") as raised:
        tune(tmp_path)
    assert "The other 3 lines are intact. Move the lines named to another file with" in str(
        raised.value
    )
    assert lines(tmp_path) == before
    # The advice helps.
    (tmp_path / RECORDS).write_bytes(b"".join(line + b"\n" for line in before[:1] + before[2:]))
    result = tune(tmp_path)
    assert (result.known_trials, result.trials) == (3, 1)


def test_another_target_is_refused_and_changes_nothing(tmp_path, measuring):
    tune(tmp_path)
    before = lines(tmp_path)
    with pytest.raises(KernelError, match="was made for target .*: pass another work_dir"):
        tune(tmp_path, threads=2)
    assert lines(tmp_path) == before


# Ends.


def test_a_signal_before_the_first_batch(tmp_path, measuring):
    def end(_schedule):
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KernelInterrupted, match="interrupted before a schedule of kernel"):
        tune(tmp_path, space=ms.space_generator.ScheduleFn(end))
    assert tune(tmp_path).trials == 4


def test_time_that_is_over_before_the_first_batch(tmp_path, measuring):
    with pytest.raises(KernelError, match="the time was over before a schedule of kernel"):
        tune(tmp_path, time_budget_s=1e-6)


def test_folders_of_killed_checks_are_removed(tmp_path, measuring):
    (tmp_path / "check_left").mkdir()
    (tmp_path / "check_left" / "untuned.so").write_text("")
    tune(tmp_path)
    assert not list(tmp_path.glob("check_*"))
