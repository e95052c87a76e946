# SPDX-License-Identifier: Apache-2.0
"""The archive of the GPU run, its parts, and what its kernels are compared with."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from tvm_droplet_ms.bench.live.gpu import __main__ as run
from tvm_droplet_ms.bench.live.gpu.archive import COMPILER, pack
from tvm_droplet_ms.bench.live.gpu.unpack import unpack
from tvm_droplet_ms.bench.live.gpu.workloads import error_of, expected, inputs


@pytest.fixture
def packed(tmp_path):
    """The library that was packed, and the archive."""
    site, archive = tmp_path / "site", tmp_path / "archive"
    library = np.random.default_rng(0).bytes(1 << 20)
    (site / COMPILER).parent.mkdir(parents=True)
    (site / COMPILER).write_bytes(library)
    (site / "tvm" / "a.py").write_text("a = 1\n")
    pack(site, archive, {"python": "2.7", "revision": "abc"})
    return library, archive


def test_what_was_packed_is_unpacked(packed, tmp_path):
    library, archive = packed
    unpack(archive, tmp_path / "there")
    assert (tmp_path / "there" / COMPILER).read_bytes() == library
    assert (tmp_path / "there" / "tvm" / "a.py").read_text() == "a = 1\n"


def test_missing_and_broken_pieces_are_noticed(packed, tmp_path):
    _, archive = packed
    piece = (archive / "compiler.03").read_bytes()
    (archive / "compiler.03").write_bytes((archive / "compiler.15").read_bytes())
    with pytest.raises(SystemExit, match="not the one that was packed"):
        unpack(archive, tmp_path / "there")
    (archive / "compiler.03").unlink()
    with pytest.raises(SystemExit, match=r"lacks compiler\.03: carry all of it"):
        unpack(archive, tmp_path / "there")
    (archive / "compiler.03").write_bytes(piece)
    unpack(archive, tmp_path / "there")


def test_another_python_is_refused_by_the_copy_in_the_archive(packed):
    _, archive = packed
    ran = subprocess.run(
        [sys.executable, str(archive / "unpack.py"), "--out", "gpu"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "is for Python 2.7, and" in ran.stderr and "pack with --python" in ran.stderr


def test_a_part_that_fails_costs_that_part_only(monkeypatch, tmp_path):
    """One that ends in an error, one that ignores its end, and one that does its work."""
    (tmp_path / "broken.py").write_text("import sys; sys.exit(3)\n")
    (tmp_path / "hangs.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n"
    )
    (tmp_path / "works.py").write_text("open('done', 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "LEAST_SECS", 0.0)
    ours = run.Run(run.parsed(["--out", "out", "--work", "work", "--minutes", "1"]))
    begun = time.monotonic()
    for part in ("broken", "hangs", "works"):
        ours.child(part, [part], 2.0)
    assert time.monotonic() - begun < 30.0
    rows = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").open()]
    assert [row["ended"] for row in rows] == ["status 3", "stopped at its cap", "status 0"]
    assert (tmp_path / "done").exists()


def test_the_convolution_by_numpy():
    """Against the sum as it is written down, at a corner and inside."""
    data, weight = inputs("conv2d")
    output = expected("conv2d", (data, weight))
    assert output.shape == (1, 56, 56, 64)
    for y, x in ((0, 0), (55, 3), (20, 30)):
        total = np.zeros(64)
        for i in range(3):
            for j in range(3):
                row, column = y + i - 1, x + j - 1
                if 0 <= row < 56 and 0 <= column < 56:
                    total += data[0, row, column].astype(float) @ weight[i, j].astype(float)
        np.testing.assert_allclose(output[0, y, x], total, atol=1e-5)
    off = output.copy()
    off[0, 5, 5, 5] += 0.01 * np.abs(output).max()
    assert error_of(off, output) == pytest.approx(0.01, rel=1e-3)
