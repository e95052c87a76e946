# SPDX-License-Identifier: Apache-2.0
"""Every damaged model file raises ModelFileError."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_droplet_ms.cost_model import ModelFileError, PretrainedModel
from tvm_droplet_ms.cost_model.features.program_features import FEATURES
from tvm_droplet_ms.cost_model.training_data import MeasuredWorkload
from tvm_droplet_papers.cost_models import LoopTrees

HEADER, MEMBER = "header.json", "trees.ubj"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Members of a valid model file."""
    path = tmp_path_factory.mktemp("model") / "good.model"
    features = np.random.default_rng(0).normal(size=(64, FEATURES)).astype(np.float32)
    target = json.dumps({"kind": "llvm", "mcpu": "znver4"})
    workload = MeasuredWorkload("made up", target, features, np.linspace(1.0, 2.0, 64))
    PretrainedModel.learn([workload], rounds=3).save(path)
    assert PretrainedModel.load(path).kind == "trees"
    with zipfile.ZipFile(path) as members:
        return {name: members.read(name) for name in members.namelist()}


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in members.items():
            written.writestr(name, content)
    return file.getvalue()


def refused(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "some.model"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"some\.model is no cost model: .") as refusal:
        PretrainedModel.load(path)
    assert "droplet-ms pretrain" in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"format": "others"}, "format is 'others'"),
        ({"format": None}, "format is None"),
        ({"model": "forest"}, "model is 'forest', expected trees or treegru"),
        ({"objective": "squares"}, "objective is 'squares', expected rank or regression"),
        *(({name: None}, f"its {name} is None") for name in ("schema", "target", "tvm")),
        *(({name: "1"}, f"its {name} is '1'") for name in ("intercept", "slope", "summary")),
        ({"summary": {}}, "workloads are None"),
        ({"summary": {"workloads": ["dense"]}}, "expected a list of objects"),
        ({"summary": {"workloads": [{"target": {"kind": "toaster"}}]}}, "toaster"),
        ({"target": {"mcpu": "znver4"}}, "kind"),
    ],
)
def test_load_rejects_wrong_header_field(
    tmp_path: Path, archive: dict[str, bytes], changes: dict[str, Any], expected: str
):
    header = json.loads(archive[HEADER]) | changes
    assert expected in refused(tmp_path, zipped(archive | {HEADER: json.dumps(header).encode()}))


@pytest.mark.parametrize(
    "name", ["format", "schema", "objective", "intercept", "slope", "target", "tvm", "summary"]
)
def test_load_rejects_missing_header_field(tmp_path: Path, archive: dict[str, bytes], name: str):
    header = json.loads(archive[HEADER])
    del header[name]
    assert name in refused(tmp_path, zipped(archive | {HEADER: json.dumps(header).encode()}))


@pytest.mark.parametrize("header", [b"[1]", b"null", b'"text"', b"{", b"\xff\xfe", b""])
def test_load_rejects_header_that_is_not_an_object(
    tmp_path: Path, archive: dict[str, bytes], header: bytes
):
    refused(tmp_path, zipped(archive | {HEADER: header}))


@pytest.mark.parametrize("missing", [HEADER, MEMBER])
def test_load_rejects_missing_archive_member(
    tmp_path: Path, archive: dict[str, bytes], missing: str
):
    kept = {name: content for name, content in archive.items() if name != missing}
    assert missing in refused(tmp_path, zipped(kept))


@pytest.mark.parametrize("trees", [b"", b"{}", b"garbage"])
def test_load_rejects_damaged_trees(tmp_path: Path, archive: dict[str, bytes], trees: bytes):
    """An empty buffer would make xgboost end the process."""
    refused(tmp_path, zipped(archive | {MEMBER: trees}))


def network_header(archive: dict[str, bytes]) -> bytes:
    header = json.loads(archive[HEADER]) | {"model": "treegru", "schema": LoopTrees.schema}
    return json.dumps(header).encode()


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        npy(np.zeros(3)),
        npy(np.array([{}], dtype=object)),
        npz(bias=np.zeros(3)),
        npz(bias=np.zeros(300))[:-80],
        npz(bias=np.zeros(300))[:200],
    ],
)
def test_load_rejects_damaged_network(tmp_path: Path, archive: dict[str, bytes], content: bytes):
    members = {HEADER: network_header(archive), "treegru.npz": content}
    refused(tmp_path, zipped(members))


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04"])
def test_load_rejects_corrupt_file(tmp_path: Path, content: bytes):
    refused(tmp_path, content)


def test_load_rejects_missing_file_and_directory(tmp_path: Path):
    for path in (tmp_path / "missing.model", tmp_path):
        with pytest.raises(ModelFileError, match="is no cost model"):
            PretrainedModel.load(path)


@pytest.mark.parametrize("seed", range(4))
def test_load_rejects_flipped_and_missing_bytes(
    tmp_path: Path, archive: dict[str, bytes], seed: int
):
    """The file loads if the damage hits only bytes that are not read."""
    generator = np.random.default_rng(seed)
    whole = zipped(archive)
    for _ in range(10):
        damaged = bytearray(whole)
        for place in generator.integers(0, len(whole), 3):
            damaged[place] ^= 0xFF
        cut = bytes(whole[: int(generator.integers(0, len(whole)))])
        refused(tmp_path, cut)
        path = tmp_path / "flipped.model"
        path.write_bytes(damaged)
        try:
            PretrainedModel.load(path)
        except ModelFileError:
            pass
