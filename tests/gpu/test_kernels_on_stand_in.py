# SPDX-License-Identifier: Apache-2.0
"""``tune_kernel`` for CUDA without a card, on a driver that puts in the outputs.

No kernel is compiled or run: what is tried is all around them. The driver puts in what NumPy
computes, and the check agrees. ``test_driver_faults.py`` has outputs that it refuses.
"""

import json
import subprocess
import sys
from pathlib import Path

import kernels
import numpy as np
import pytest

from tvm_droplet_ms.bench.space import Space

HERE = Path(__file__).parent
DEVICE = "stand-in for a CUDA device"


@pytest.fixture
def run(environment, tmp_path):
    """Runs Python with the stand-in, in a folder of its own; returns what came out."""
    paths = [str(HERE), str(HERE.parent / "measure"), environment["PYTHONPATH"]]
    environment = environment | {"PYTHONPATH": ":".join(paths)}

    def run(*arguments, status=0):
        ran = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert ran.returncode == status, ran.stderr
        return ran

    run.environment = environment
    return run


def droplet_ms(*arguments):
    return ["-m", "tvm_droplet_ms", *arguments]


def put_in_output(run, name, tmp_path, arrays=None):
    """Have each launch write the right output of a kernel."""
    arrays = arrays or kernels.arrays_of(getattr(kernels, name)())
    path = tmp_path / "output"
    path.write_bytes(kernels.output_of(name, arrays).astype("float32").tobytes())
    run.environment["STAND_IN_OUTPUT"] = str(path)


def times(work_dir):
    lines = (work_dir / "database_tuning_record.json").read_text().splitlines()
    return [json.loads(line)[1][1] for line in lines]


def test_a_dense_from_the_shell(run, tmp_path):
    put_in_output(run, "dense", tmp_path)
    options = ("--trials", "6", "--work-dir", "logs", "--quiet")
    tune = droplet_ms("tune", "kernels:dense", "--target", "cuda", *options, "--out", "dense.so")
    text = run(*tune).stdout
    assert "the unscheduled kernel does not run on a GPU" in text
    assert "checked, outputs differ by" in text and "6 schedules measured" in text
    assert (tmp_path / "dense.so").stat().st_size > 0
    # The clock of the stand-in: 0.05 ms a launch, times what grid and block make of it.
    measured = times(tmp_path / "logs")
    assert len(measured) == 6 and all(5e-5 <= min(secs) < 1e-1 for secs in measured)

    later = (
        ["resume", "logs", "--trials", "8", "--json"],
        ["report", "logs"],
        ["doctor", "logs"],
    )
    commands = f"for command in {later}: print('STATUS', main(command))"
    said = run("-c", f"from tvm_droplet_ms.cli import main\n{commands}").stdout
    resumed, _, examined = said.split("STATUS 0\n")[:3]
    resumed = json.loads(resumed)
    assert (resumed["known_trials"], resumed["trials"]) == (6, 2)
    assert resumed["verified"] and not resumed["is_untuned"]
    assert resumed["microseconds"]["untuned"] is None
    assert resumed["peak_gflops"] is None
    assert 50.0 <= resumed["microseconds"]["median"] < 1e5

    page = (tmp_path / "logs" / "report.html").read_text()
    assert DEVICE in page and "sm_90" in page
    for line in (
        "ok       CUDA driver: for CUDA 13.0",
        "ok       CUDA runtime: TVM's is loaded",
        f"ok       CUDA device: {DEVICE}, sm_90; a block has at most 1024 threads and 49152 bytes",
        "ok       CUDA compiler: nvcc, ",
        f"ok       target: cuda sm_90, which this machine's {DEVICE} runs",
    ):
        assert line in examined


def test_a_softmax_from_python(run, tmp_path):
    put_in_output(run, "softmax", tmp_path)
    found = json.loads(run(str(HERE / "tune_softmax.py")).stdout)
    assert "the unscheduled kernel does not run on a GPU" in found["text"]
    assert "__global__" in found["source"]
    assert found["verified"] and not found["is_untuned"]
    assert found["again"] == [0, 6, True]
    # The first process of the check met an illegal access, and its schedule is not to blame.
    assert (tmp_path / "fired").exists() and not found["blamed"]
    assert found["machine"]["cpu"] == DEVICE and found["machine"]["peak_gflops"] is None


def test_a_dense_on_a_server(run, tmp_path):
    put_in_output(run, "dense", tmp_path)
    refusal, _, text = run(str(HERE / "tune_on_server.py")).stdout.partition("\n")
    assert "lacks max_threads_per_block and max_shared_memory_per_block: pass one" in refusal
    found = json.loads(text)
    assert found["verified"] and found["trials"] == 4


def test_a_sample_of_what_can_be_launched(run, tmp_path):
    generator = np.random.default_rng(0)
    arrays = [generator.uniform(-1, 1, shape).astype("float32") for shape in ((64, 32), (32, 96))]
    put_in_output(run, "dense", tmp_path, arrays)
    name, file = "kernels:dense_space", "dense.json.gz"
    sample = ["space", "sample", name, "--target", "cuda", "--points", "6"]
    features = ["space", "features", file, "--trust", name, "--out", "features"]
    refused = ["space", "sample", "dense", "--target", "cuda"]
    commands = f"print([main(args) for args in ({sample}, {features}, {refused})])"
    ran = run("-c", f"from tvm_droplet_ms.cli import main; {commands}")
    assert ran.stdout.splitlines()[-1] == "[0, 0, 1]", ran.stderr
    assert "dense: its rules are for CPUs" in ran.stderr
    found = Space.load(tmp_path / file)
    assert found.target["kind"] == "cuda" and found.machine["device"] == DEVICE
    assert len(found.modules) == 6 and set(found.origins) == {"random", "near"}
    assert all(5e-5 <= module.time < 1e-1 for module in found.modules)
    with np.load(tmp_path / "features" / "dense.npz") as rows:
        assert len(rows["secs"]) == 6


def test_a_target_of_another_device_is_refused(run):
    tune = droplet_ms("tune", "kernels:dense", "--target", "nvidia/nvidia-a100", "--quiet")
    said = run(*tune, "--trials", "1", status=1).stderr
    assert f"the arch sm_80, whose code does not run on this machine's device, {DEVICE}" in said
    assert 'pass "cuda", which asks this machine\'s device' in said
