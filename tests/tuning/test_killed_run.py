# SPDX-License-Identifier: Apache-2.0
"""A run that is killed leaves a directory that another one goes on from."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import small_network

import tvm_droplet_ms
from tvm_droplet_ms.tuning import tune
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel

RECORDS = "database_tuning_record.json"
PATIENCE_SECS = 240


@pytest.fixture(scope="module")
def model():
    return small_network.small_model()


@pytest.fixture
def run(tmp_path):
    """Runs that tune in a directory, all of which are ended with the test."""
    runs = []

    def start():
        runs.append(Run(tmp_path))
        return runs[-1]

    yield start
    for started in runs:
        started.kill()


class Run:
    """A process that tunes the small network."""

    def __init__(self, directory):
        self._directory = directory
        self._output = (directory / "output.txt").open("ab")
        self.temporary = directory / "temporary"
        self.temporary.mkdir(exist_ok=True)
        package = Path(tvm_droplet_ms.__file__).parents[1]
        self._process = subprocess.Popen(
            [sys.executable, small_network.__file__, str(directory), "1000"],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(package), os.environ["PYTHONPATH"]]),
                "OMP_NUM_THREADS": "1",
                "TMPDIR": str(self.temporary),
            },
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait_for(self, condition):
        end = time.monotonic() + PATIENCE_SECS
        while not condition():
            output = (self._directory / "output.txt").read_text()
            assert self._process.poll() is None, f"the run ended by itself: {output}"
            assert time.monotonic() < end, f"not seen in {PATIENCE_SECS} s: {output}"
            time.sleep(0.01)

    def kill(self):
        """Kill it, and wait for its worker servers, which are in sessions of their own."""
        if self._process.poll() is None:
            children = psutil.Process(self._process.pid).children(recursive=True)
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for child in children:
                # Servers end by themselves when their parent is gone, and delete its files.
                try:
                    child.wait(PATIENCE_SECS)
                except psutil.NoSuchProcess:
                    pass
        self._output.close()


def lines(directory):
    """The whole records of the database, also one that lacks only its newline."""
    path = directory / RECORDS
    return sum(map(is_whole, path.read_bytes().splitlines())) if path.exists() else 0


def is_whole(line):
    try:
        return bool(json.loads(line))
    except ValueError:
        return False


def time_of(path):
    return path.stat().st_mtime_ns if path.exists() else 0


def check(directory, model):
    """Check that nothing is lost; returns the result of a run without trials."""
    image = small_network.small_image()
    expected = small_network.expected_output(model[1], image)
    (output,) = CompiledModel.load(directory / "model.so")([image])
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)
    before = lines(directory)
    result = tune(model, trials=0, work_dir=directory)
    assert lines(directory) == before
    assert len(tvm_droplet_ms.open_database(directory).get_all_tuning_records()) == before
    assert sum(row.trials for row in result.kernels) == before
    # Without a schedule where that was measured as the fastest.
    assert {row.schedule for row in result.kernels} <= {"measured", "predicted", "untouched"}
    assert all(row.schedule != "predicted" for row in result.kernels if row.trials)
    np.testing.assert_allclose(result(image), expected, rtol=1e-4, atol=1e-4)
    return result


def test_a_run_killed_after_its_first_records_loses_nothing(run, model, tmp_path):
    started = run()
    started.wait_for(lambda: lines(tmp_path) >= 2)
    started.kill()
    assert list(started.temporary.iterdir()) == []
    check(tmp_path, model)
    # A kill while a record is written is rare, so it is made by hand.
    path = tmp_path / RECORDS
    before = lines(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    assert any(RECORDS in note and "torn" in note for note in check(tmp_path, model).notes)
    assert lines(tmp_path) == before - 1 > 0


@pytest.mark.slow
def test_a_run_killed_while_it_begins_to_tune_loses_nothing(run, model, tmp_path):
    for secs in (0.0, 1.0, 3.0):
        before = time_of(tmp_path / "model.so")
        started = run()
        started.wait_for(lambda before=before: time_of(tmp_path / "model.so") > before)
        time.sleep(secs)
        started.kill()
        check(tmp_path, model)
