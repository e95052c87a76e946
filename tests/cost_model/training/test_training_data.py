# SPDX-License-Identifier: Apache-2.0
"""Training data files."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from tvm_droplet_ms.cost_model.training_data import MeasuredWorkload, TrainingDataError, merge

TARGET = json.dumps({"kind": "llvm", "mcpu": "znver4"})


def made_up(name: str = "dense", programs: int = 5, width: int = 3) -> MeasuredWorkload:
    generator = np.random.default_rng(programs)
    secs = generator.uniform(1.0, 2.0, programs)
    secs[0] = np.inf
    features = generator.normal(size=(programs, width)).astype(np.float32)
    return MeasuredWorkload(name, TARGET, features, secs)


def test_save_and_load(tmp_path: Path):
    path = tmp_path / "made" / "dense.npz"
    workload = made_up()
    workload.save(path, "1: some features")
    loaded, schema = MeasuredWorkload.load(path)
    assert (loaded.name, loaded.target, schema) == ("dense", TARGET, "1: some features")
    np.testing.assert_array_equal(loaded.features, workload.features)
    np.testing.assert_array_equal(loaded.secs, workload.secs)
    assert (loaded.features.dtype, loaded.secs.dtype) == (np.float32, np.float64)
    assert [file.name for file in path.parent.iterdir()] == ["dense.npz"]


def saved(**changes: object) -> bytes:
    file = io.BytesIO()
    arrays = vars(made_up()) | {"schema": "1: some features"} | changes
    np.savez(file, **{name: value for name, value in arrays.items() if value is not None})
    return file.getvalue()


WHOLE = saved()


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"", ""),
        (b"text", ""),
        (WHOLE[:-60], ""),
        (WHOLE[:100], ""),
        (WHOLE.replace(b"dense"[0:1], b"D"), ""),
        (saved(schema=None), "schema"),
        (saved(secs=None), "secs"),
        (saved(secs=np.ones(4)), r"shape \(5, 3\) and its times of \(4,\)"),
        (saved(features=np.ones(5, dtype=np.float32)), r"shape \(5,\)"),
        (saved(features=np.ones((5, 3))), "features are float64"),
        (saved(secs=np.ones(5, dtype=int)), "times int64"),
        (saved(target="[]"), "target is '\\[\\]'"),
        (saved(target="llvm"), ""),
        (saved(secs=np.array([None] * 5)), ""),
    ],
)
def test_load_rejects_damaged_file(tmp_path: Path, content: bytes, expected: str):
    path = tmp_path / "some.npz"
    path.write_bytes(content)
    message = rf"some\.npz is no training data: .*{expected}.*droplet-ms space features"
    with pytest.raises(TrainingDataError, match=message):
        MeasuredWorkload.load(path)


def test_load_rejects_missing_file_and_single_array(tmp_path: Path):
    with pytest.raises(TrainingDataError, match="No such file"):
        MeasuredWorkload.load(tmp_path / "missing.npz")
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(TrainingDataError, match=r"single array, expected a \.npz archive"):
        MeasuredWorkload.load(tmp_path / "array.npz")


def test_failed_save_keeps_previous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "dense.npz"
    made_up().save(path, "schema")

    def fail(*arguments: object, **arrays: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="no space"):
        made_up(programs=7).save(path, "schema")
    assert len(MeasuredWorkload.load(path)[0].secs) == 5
    assert [file.name for file in tmp_path.iterdir()] == ["dense.npz"]


def test_merge_joins_programs_of_same_workload():
    first, second, other = made_up(programs=4), made_up(programs=2), made_up("conv2d")
    elsewhere = MeasuredWorkload("dense", "{}", first.features, first.secs)
    merged = merge([first, other, second, elsewhere])
    assert [(workload.name, len(workload.secs)) for workload in merged] == [
        ("dense", 6),
        ("conv2d", 5),
        ("dense", 4),
    ]
    np.testing.assert_array_equal(merged[0].secs, [*first.secs, *second.secs])
    np.testing.assert_array_equal(merged[0].features[4:], second.features)
