# SPDX-License-Identifier: Apache-2.0
"""Signals that end ``droplet-ms`` outside of its tuning, and a kill within it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest

import tvm_droplet_ms
from tvm import te
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.cli.manifest import FILE, read_manifest

RECORDS = "database_tuning_record.json"

WAITING = """
import time
from tvm_droplet_ms.cli.arguments import ending_at_once
with ending_at_once("droplet-ms resume logs"):
    print("begun", flush=True)
    time.sleep(60)
"""


def tiny_matmul():
    return te.create_prim_func(te_workload.matmul(16, 16, 16))


def start(*arguments):
    """A process that takes signals, also where the tests run in a background job."""
    package = Path(tvm_droplet_ms.__file__).parents[1]
    folders = [str(package), str(Path(__file__).parent), os.environ["PYTHONPATH"]]
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_outside_of_the_tuning_ends_in_words(number):
    process = start("-c", WAITING)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == ("\ninterrupted; what is measured is kept. To go on: droplet-ms resume logs\n")


def test_signals_that_are_ignored_stay_so():
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + WAITING
    process = start("-c", ignoring.replace("sleep(60)", "sleep(1)"))
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def traces(work_dir):
    path = work_dir / RECORDS
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.dumps(json.loads(line)[1][0]) for line in whole.splitlines()]


def test_a_killed_run_is_resumed_and_measures_no_schedule_again(tmp_path, capsys):
    command = ["tune", "test_interruption:tiny_matmul", "--work-dir", str(tmp_path), "--quiet"]
    process = start("-m", "tvm_droplet_ms", *command, "--trials", "12")
    while not traces(tmp_path):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    before = traces(tmp_path)
    assert main(["resume", str(tmp_path)]) == 0
    after = traces(tmp_path)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == 12
    assert f"{12 - len(before)} schedules measured, {len(before)} known before" in (
        capsys.readouterr().out
    )


def test_a_second_run_leaves_the_command_of_the_first(tmp_path, capsys):
    (tmp_path / FILE).write_text('{"options": {"model": "dense"}, "spent_secs": 1, "started": 2}')
    with filelock.FileLock(tmp_path / ".lock"):
        assert main(["tune", "softmax", "--work-dir", str(tmp_path)]) == 1
    assert "error: another process tunes in" in capsys.readouterr().err
    assert read_manifest(tmp_path).options == {"model": "dense"}


def test_another_target_leaves_the_command_of_the_first(tmp_path, capsys):
    command = ["tune", "test_interruption:tiny_matmul", "--work-dir", str(tmp_path)]
    # 0 trials measure nothing, and fail in words, but make the directory.
    assert main([*command, "--trials", "0"]) == 1
    assert "trials is 0" in capsys.readouterr().err
    assert main([*command, "--threads", "2"]) == 1
    assert "pass another work_dir" in capsys.readouterr().err
    assert read_manifest(tmp_path).options["threads"] == 1
