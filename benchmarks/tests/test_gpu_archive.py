# SPDX-License-Identifier: Apache-2.0
"""The archive of the GPU run, its parts, and what its kernels are compared with."""

import json
import lzma
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks.gpu import __main__ as run
from benchmarks.gpu.archive import COMPILER, pack
from benchmarks.gpu.unpack import unpack
from benchmarks.gpu.workloads import error_of, expected, inputs

LIMIT = 600_000


@pytest.fixture
def packed(tmp_path):
    """The library that was packed, and the archive."""
    library = np.random.default_rng(0).bytes(1 << 20)
    pack(site(tmp_path, library), tmp_path / "archive", LIMIT, {"python": "2.7", "revision": "abc"})
    return library, tmp_path / "archive"


def site(folder, library):
    """A folder of packages with the compiler library."""
    found = folder / "site"
    (found / COMPILER).parent.mkdir(parents=True, exist_ok=True)
    (found / COMPILER).write_bytes(library)
    (found / "tvm" / "a.py").write_text("a = 1\n")
    return found


def carried(archive, folder):
    """A folder with the files of all folders of the archive."""
    for part in archive.iterdir():
        assert sum(path.stat().st_size for path in part.glob("[cp]*")) <= LIMIT
        shutil.copytree(part, folder, dirs_exist_ok=True)
    return folder


def test_what_was_packed_is_unpacked(packed, tmp_path):
    library, archive = packed
    assert len(list(archive.iterdir())) == 2
    unpack(carried(archive, tmp_path / "kept"), tmp_path / "there")
    assert (tmp_path / "there" / COMPILER).read_bytes() == library
    assert (tmp_path / "there" / "tvm" / "a.py").read_text() == "a = 1\n"


def test_pieces_are_compressed_again_for_another_library_only(packed, tmp_path, monkeypatch):
    library, archive = packed
    words = {"python": "2.7", "revision": "def"}
    with monkeypatch.context() as patch:
        patch.setattr(lzma, "compress", None)
        pack(site(tmp_path, library), archive, LIMIT, words)
    other = library[::-1]
    pack(site(tmp_path, other), archive, LIMIT, words)
    unpack(carried(archive, tmp_path / "kept"), tmp_path / "there")
    assert (tmp_path / "there" / COMPILER).read_bytes() == other


def test_a_broken_piece_is_noticed(packed, tmp_path):
    _, archive = packed
    kept = carried(archive, tmp_path / "kept")
    shutil.copy(kept / "compiler.15", kept / "compiler.03")
    with pytest.raises(SystemExit, match="not the one that was packed"):
        unpack(kept, tmp_path / "there")


def run_unpack(folder, temporary):
    return subprocess.run(
        [sys.executable, str(folder / "unpack.py"), "--out", "gpu"],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_another_python_is_refused_by_the_copy_in_the_archive(packed, tmp_path):
    ran = run_unpack(packed[1] / "1", tmp_path)
    assert ran.returncode == 1
    assert "the archive is for Python 2.7, and" in ran.stderr and "pack with" in ran.stderr


def test_one_folder_after_the_other_is_kept(tmp_path):
    """The last one starts the run: here a package that prints its arguments."""
    library = np.random.default_rng(0).bytes(1 << 20)
    packages = site(tmp_path, library)
    (packages / "benchmarks" / "gpu").mkdir(parents=True)
    for folder in ("benchmarks", "benchmarks/gpu"):
        (packages / folder / "__init__.py").write_text("")
    program = "import sys; print('begun with', sys.argv[1:])\n"
    (packages / "benchmarks/gpu/__main__.py").write_text(program)
    python = ".".join(map(str, sys.version_info[:2]))
    words = {"python": python, "revision": "abc"}
    pack(packages, tmp_path / "archive", LIMIT, words)
    first, second = (run_unpack(tmp_path / "archive" / part, tmp_path) for part in "12")
    assert "the run starts with the folder that has compiler." in first.stdout, first.stderr
    assert second.stdout.endswith("begun with ['--out', 'gpu']\n"), second.stderr


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
