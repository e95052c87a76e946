# SPDX-License-Identifier: Apache-2.0
"""The archive of the GPU run, and what its kernels are compared with."""

import numpy as np
import pytest

from tvm_droplet_ms.bench.live.gpu.archive import COMPILER, pack
from tvm_droplet_ms.bench.live.gpu.unpack import unpack
from tvm_droplet_ms.bench.live.gpu.workloads import error_of, expected, inputs


def test_what_was_packed_is_unpacked(tmp_path):
    site = tmp_path / "site"
    library = np.random.default_rng(0).bytes(1 << 20)
    (site / COMPILER).parent.mkdir(parents=True)
    (site / COMPILER).write_bytes(library)
    (site / "tvm" / "a.py").write_text("a = 1\n")
    pack(site, tmp_path / "out", 600_000)
    first, second = (tmp_path / "out" / go for go in ("1", "2"))
    assert sum(path.stat().st_size for path in first.iterdir()) <= 600_000
    both = tmp_path / "both"
    both.mkdir()
    for path in second.iterdir():
        (both / path.name).write_bytes(path.read_bytes())
    with pytest.raises(SystemExit, match=r"lacks compiler\.00.*carry the first folder"):
        unpack(both, tmp_path / "there")
    for path in first.iterdir():
        (both / path.name).write_bytes(path.read_bytes())
    unpack(both, tmp_path / "there")
    assert (tmp_path / "there" / COMPILER).read_bytes() == library
    assert (tmp_path / "there" / "tvm" / "a.py").read_text() == "a = 1\n"


def test_a_broken_piece_is_noticed(tmp_path):
    site = tmp_path / "site"
    (site / COMPILER).parent.mkdir(parents=True)
    (site / COMPILER).write_bytes(bytes(1000))
    pack(site, tmp_path / "out", 0)
    second = tmp_path / "out" / "2"
    (second / "compiler.03").write_bytes((second / "compiler.15").read_bytes())
    with pytest.raises(SystemExit, match="not the one that was packed"):
        unpack(second, tmp_path / "there")


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
