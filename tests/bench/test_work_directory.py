# SPDX-License-Identifier: Apache-2.0
"""Work directories: rejection, resumption and deletion."""

from pathlib import Path

import pytest
from conformance.workloads import LLVM, matmul
from replaying import silent, tiled

from tvm.target import Target
from tvm_droplet_ms import cli
from tvm_droplet_ms.bench.making import building
from tvm_droplet_ms.bench.making.collection import Collection
from tvm_droplet_ms.bench.making.sampling import SampleCollection
from tvm_droplet_ms.bench.work_directory import CollectionError, claim, remove

OTHER = Target({"kind": "llvm", "mcpu": "znver4", "num-cores": 2})


@pytest.fixture
def quick_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """``space build`` that measures nothing."""

    def build_space(definition, name, target, directory, out, *, passes, progress):
        Collection(directory, definition.mod, target)
        out.write_text("a space\n")

    monkeypatch.setattr(building, "build_space", build_space)


def build(work: Path, out: Path) -> int:
    return cli.main(["space", "build", "dense", "--work-dir", str(work), "--out", str(out)])


def test_build_rejects_directory_with_foreign_files(
    quick_build: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    assert build(tmp_path, tmp_path / "dense.json") == 1
    assert f"{tmp_path} is not empty" in capsys.readouterr().err
    assert thesis.read_text() == "years of work"
    assert sorted(tmp_path.iterdir()) == [thesis]


def test_build_deletes_only_what_it_created(quick_build: None, tmp_path: Path):
    assert build(tmp_path / "work", tmp_path / "dense.json") == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "dense.json"]
    work = tmp_path / "work"
    work.mkdir()
    assert build(work, work / "dense.json") == 0
    assert list(work.iterdir()) == [work / "dense.json"]


def test_directory_of_user_stays(tmp_path: Path):
    claim(tmp_path, {"workload": "dense"})
    remove(tmp_path)
    assert tmp_path.is_dir() and not list(tmp_path.iterdir())
    unclaimed = tmp_path / "log.jsonl"
    unclaimed.touch()
    remove(tmp_path)
    assert unclaimed.exists()


def test_collection_of_another_task_is_rejected(tmp_path: Path):
    Collection(tmp_path, matmul(4, 4, 4), LLVM)
    Collection(tmp_path, matmul(4, 4, 4), LLVM)
    with pytest.raises(CollectionError, match="another task: workload .*delete this one"):
        Collection(tmp_path, matmul(4, 4, 8), LLVM)
    with pytest.raises(CollectionError, match="target .*znver4"):
        Collection(tmp_path, matmul(4, 4, 4), OTHER)


def test_torn_line_of_sample_is_cut_off(made_up_times: None, tmp_path: Path):
    collection = SampleCollection(tmp_path, tiled(), LLVM)
    collection.add_random(6, silent)
    path = tmp_path / "sample.jsonl"
    path.write_text(path.read_text()[:-9])
    resumed = SampleCollection(tmp_path, tiled(), LLVM)
    assert list(resumed.modules) == list(collection.modules)[:5]
    resumed.add_random(6, silent)
    assert len(path.read_text().splitlines()) == len(resumed.modules) == 6
