# SPDX-License-Identifier: Apache-2.0
"""Tuning for CUDA without a card: TVM's CUDA runtime on a driver whose kernels do nothing."""

import ctypes
import json
import subprocess
import sys


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
    part = [sys.executable, "-m", "tvm_droplet_ms.bench.live.gpu.tuned_part"]
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
