# SPDX-License-Identifier: Apache-2.0
"""Symbols and annotations, worked by hand. The file of a draft."""

import zipfile

import numpy as np
import pytest
from tiled_product import EXTENTS, LIMITS, NEST, RUNS, STRIDES, TOUCHED, column

from tvm_droplet_ms.cost_model.boosted_trees import Trees
from tvm_droplet_ms.cost_model.draft import DraftFileError, SymbolDraft
from tvm_droplet_ms.cost_model.draft.draft_file import (
    SHIPPED,
    fit_draft,
    read_draft,
    shipped_draft,
    write_draft,
)
from tvm_droplet_ms.cost_model.draft.symbols import (
    OF_NEST,
    SIZES,
    SYMBOLS,
    NestValues,
    fusible_loops,
    parallel_extent,
    symbols,
    vector_extent,
)


def test_symbols_of_a_tiled_product():
    (row,) = symbols([NEST], LIMITS)
    assert row.shape == (SYMBOLS,)
    vector, parallel, tile, reduced, outputs, lanes = 2.0 ** row[:6]
    assert (vector, parallel, lanes) == (16, 8, 1)
    assert (tile, reduced, outputs) == (16 * 8, 32, 16 * 8)
    within = dict(zip(SIZES, 2.0 ** row[7 : 7 + len(SIZES)], strict=True))
    # The innermost loop touches 132 bytes, the tile 608 and a block of k 3,584.
    assert [within[size] for size in (64, 256, 1024, 4096)] == [1, 16, 128, 4096]
    operations = 2 * 64 * 32 * 16
    start = 7 + len(SIZES)
    traffic = dict(zip(SIZES, 2.0 ** row[start : start + len(SIZES)] * operations, strict=True))
    # Into 4 KiB: all of c and a once, b once for each of the 8 blocks; plus one byte.
    assert traffic[4096] == pytest.approx(4 * (64 * 16 + 64 * 32 + 8 * 16 * 32) + 1)
    # Into 64 bytes: each iteration moves its share of what the innermost loop touches.
    assert traffic[64] == pytest.approx(64 * 32 * 16 * (4 + 4 / 16 + 4) + 1)
    np.testing.assert_array_equal(row[OF_NEST : 2 * OF_NEST], 0.0)


def test_symbols_of_a_workload_twice_as_large_differ_by_its_shape_only():
    """Twice the rows in the outermost loop: neither the tile nor the traffic per operation."""
    larger = NestValues(
        EXTENTS * column(1, 1, 1, 2),
        TOUCHED,
        RUNS,
        STRIDES,
        [4, 4, 4],
        NEST.reduces,
        NEST.single,
        2,
    )
    larger.touched[:2, -1] *= 2.0
    ours, theirs = symbols([NEST], LIMITS)[0], symbols([larger], LIMITS)[0]
    larger.touched[:2, -1] /= 2.0
    start = 7 + len(SIZES)
    small = int(np.searchsorted(SIZES, 1024.0)) + 1
    np.testing.assert_allclose(
        ours[start : start + small], theirs[start : start + small], atol=1e-4
    )
    assert ours[2] == theirs[2]


def test_vector_ends_at_a_stride_a_reduction_and_a_limit():
    steps = list(STRIDES)
    # a has no stride of 1 within k, and is not read along j: j alone, then i breaks b's run.
    assert fusible_loops(EXTENTS, steps).tolist() == [1]
    assert fusible_loops(EXTENTS, steps[:1]).tolist() == [4]
    options = {"reduces": (False, False, True, False), "single": (True,) * 4}
    for limit, expected in ((64.0, 16), (200.0, 128), (127.0, 16), (8.0, 1)):
        found = vector_extent(EXTENTS, steps[:1], limit=np.array([limit]), **options)
        assert found.tolist() == [expected]
    alone = options | {"single": (False, True, True, True)}
    assert vector_extent(EXTENTS, steps[:1], limit=np.array([64.0]), **alone).tolist() == [1]


def test_parallel_fuses_until_the_limit_is_exceeded():
    extents = column(16, 8, 4, 4)
    kinds = {"reduces": (False, False, False, False), "single": (True,) * 4}
    for limit, expected in ((1.0, 4), (4.0, 16), (16.0, 128), (1e9, 2048), (0.0, 1)):
        assert parallel_extent(extents, limit=np.array([limit]), **kinds).tolist() == [expected]
    kinds["single"] = (True, True, False, True)
    assert parallel_extent(extents, limit=np.array([1e9]), **kinds).tolist() == [16]
    kinds["reduces"] = (False, False, True, False)
    assert parallel_extent(extents, limit=np.array([1e9]), **kinds).tolist() == [4]


def make_trees():
    generator = np.random.default_rng(0)
    rows = generator.random((200, SYMBOLS), dtype=np.float32)
    return rows, fit_draft([rows, rows[:50]], [rows[:, 3] / 2, rows[:50, 3]], seed=1)


def test_trees_rank_by_what_matters():
    rows, trees = make_trees()
    assert np.corrcoef(trees.predict(rows), rows[:, 3])[0, 1] > 0.9


def test_written_draft_is_read(tmp_path):
    rows, trees = make_trees()
    write_draft(tmp_path / "a.draft", trees, ["one", "two"])
    np.testing.assert_array_equal(
        SymbolDraft.from_file(tmp_path / "a.draft").trees.predict(rows), trees.predict(rows)
    )


def test_shipped_draft_can_be_used():
    assert SHIPPED.stat().st_size < 300 * 1024
    scores = shipped_draft().predict(symbols([NEST], LIMITS))
    assert scores.shape == (1,) and np.isfinite(scores).all()


def test_files_that_hold_no_draft_are_refused(tmp_path):
    path = tmp_path / "a.draft"
    with pytest.raises(DraftFileError, match="a.draft is no draft"):
        read_draft(path)
    path.write_bytes(b"text")
    with pytest.raises(DraftFileError, match="a.draft is no draft"):
        read_draft(path)
    _, trees = make_trees()
    assert isinstance(trees, Trees)
    for header, message in (("[]", "expected that of a draft"), ("{", "is no draft")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", header)
            archive.writestr("trees.ubj", trees.to_bytes())
        with pytest.raises(DraftFileError, match=message):
            read_draft(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", '{"format": "tvm-droplet-ms draft", "schema": "0"}')
        archive.writestr("trees.ubj", trees.to_bytes())
    with pytest.raises(DraftFileError, match="has the symbols '0', expected '1: "):
        read_draft(path)
