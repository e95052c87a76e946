# SPDX-License-Identifier: Apache-2.0
"""A card's faults cost the candidate that meets them and its process, and never the run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from faulty_runs import CANDIDATES, TIMEOUT_SECS

PROGRAM = Path(__file__).parent / "faulty_runs.py"

WORDS = {
    "memory": "standInError (2)",
    "launch": "CUDALaunch Error",
    "limits": "CUDALaunch Error",
    "illegal": "standInError (700)",
    "hang": "its time limit",
}
"""What the message of each fault has; 2 and 700 are CUDA's."""

SECOND_CANDIDATE = 5
"""The launch that is the first one of the second candidate; each has four."""


@pytest.fixture(scope="module")
def runs(environment, tmp_path_factory):
    """The batches of candidates, by their faults."""

    def measure(launch, *faults):
        folder = tmp_path_factory.mktemp("runs")
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(folder), str(launch), *faults],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return {run["fault"]: run for run in map(json.loads, done.stdout.splitlines())}

    found = measure(SECOND_CANDIDATE, *WORDS)
    # In the middle of timing, TVM ends the process where it gives back the events of the clock.
    found["illegal while timing"] = measure(SECOND_CANDIDATE + 1, "illegal")["illegal"]
    return found


@pytest.mark.parametrize("fault", [*WORDS, "illegal while timing"])
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


def test_a_run_ends_in_time(runs):
    for fault, run in runs.items():
        waited = TIMEOUT_SECS if fault == "hang" else 0.0
        assert run["secs"] < waited + 15.0, fault
