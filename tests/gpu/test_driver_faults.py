# SPDX-License-Identifier: Apache-2.0
"""A card's faults cost the candidate that meets them and its process, and never the run."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest
from faulty_runs import CANDIDATES, TIMEOUT_SECS

PROGRAM = Path(__file__).parent / "faulty_runs.py"

WORDS = {
    "memory:5": "standInError (2)",
    "launch:5": "CUDALaunch Error",
    "limits:5": "CUDALaunch Error",
    "illegal:5": "standInError (700)",
    "hang:5": "its time limit",
    # In the middle of timing: TVM ends the process where it gives back the events of the clock.
    "illegal:6": "its process was ended by SIGABRT",
}
"""Words of the message of each fault; 2 and 700 are CUDA's. A candidate has four launches: the
fifth is the first one of the second candidate."""


@pytest.fixture(scope="module")
def runs(environment, tmp_path_factory):
    """The batches of candidates, by their faults."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("runs")), *WORDS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line.get("fault", line.get("kind")): line for line in lines}


@pytest.mark.parametrize("fault", WORDS)
def test_a_fault_costs_one_candidate_and_its_process(runs, fault):
    run = runs[fault]
    assert [error is None for error in run["errors"]] == [True, False, True, True]
    assert len(run["errors"]) == CANDIDATES
    assert sum(run["failures"].values()) == 1
    first, hit, *later = run["processes"]
    assert first == hit
    assert len(set(later)) == 1
    assert hit not in later


@pytest.mark.parametrize("fault", WORDS)
def test_a_fault_is_told_in_words(runs, fault):
    assert WORDS[fault] in runs[fault]["errors"][1]


@pytest.mark.parametrize("kind", dict.fromkeys(fault.partition(":")[0] for fault in WORDS))
def test_a_fault_in_the_check_is_no_wrong_schedule(runs, kind):
    """The second process finds the schedule right; where it fails too, the device is named."""
    assert (runs[kind]["is_right"], runs[kind]["left"]) == (True, 0)
    assert "the device failed twice: " in runs[kind]["words"]
    assert WORDS[f"{kind}:5"] in runs[kind]["words"]


def test_a_kernel_that_computes_nothing_is_wrong(runs):
    assert runs["idle"]["is_right"] is False
    assert "argument 'b' differs by" in runs["idle"]["words"]


def test_a_run_ends_in_time(runs):
    for fault in WORDS:
        run = runs[fault]
        waited = TIMEOUT_SECS if fault.startswith("hang") else 0.0
        assert run["secs"] < waited + 15.0, fault


class LaunchConfig(ctypes.Structure):
    """The beginning of ``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
    )


def test_it_refuses_what_a_card_refuses(driver):
    launch = ctypes.CDLL(str(driver / "libcuda.so.1")).cuLaunchKernelEx

    def status(threads, shared_bytes):
        config = LaunchConfig((1, 1, 1), (threads, 1, 1), shared_bytes)
        return launch(ctypes.byref(config), None, None, None)

    assert status(1024, 227 << 10) == 0
    assert status(1025, 0) != 0
    assert status(32, (227 << 10) + 1) != 0


def test_a_dense_is_tuned_for_cuda(compiling, tmp_path):
    """Proposed, compiled for a card, loaded, timed by the device's clock and recorded."""
    part = [sys.executable, "-m", "benchmarks.gpu.tuned_part"]
    out, work = tmp_path / "out", tmp_path / "work"
    out.mkdir()
    subprocess.run(
        [*part, "small_dense", "droplet", "--trials=8", f"--out={out}", f"--work={work}"],
        env=compiling,
        cwd=tmp_path,
        check=True,
    )
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    trials = [row for row in rows if row["part"] == "trial"]
    assert [trial["trial"] for trial in trials] == list(range(1, 9))
    assert all("error" not in trial for trial in trials)
    # The clock of the stand-in: 0.05 ms a launch, times what grid and block make of it.
    assert all(5e-5 <= trial["seconds"] < 1e-1 for trial in trials)
    records = work / "small_dense-droplet" / "database_tuning_record.json"
    assert len(records.read_text().splitlines()) == 8
