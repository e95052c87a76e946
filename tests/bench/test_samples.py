# SPDX-License-Identifier: Apache-2.0
"""Samples for training cost models: drawing, writing, and the shipped samples."""

import json
from pathlib import Path

import numpy as np
import pytest
from conformance.workloads import LLVM
from replaying import annotated_space, silent, tiled, tiny

from tvm_droplet_ms import cli
from tvm_droplet_ms.bench import space as measured
from tvm_droplet_ms.bench.definition import DEFINITIONS, Definition, find_definition
from tvm_droplet_ms.bench.layers import LAYERS
from tvm_droplet_ms.bench.making import sampling
from tvm_droplet_ms.bench.making.building import build_sample
from tvm_droplet_ms.bench.making.enumeration import enumerate_space
from tvm_droplet_ms.bench.making.sampling import Sampler
from tvm_droplet_ms.bench.space import Space, find_space, shipped_samples, shipped_spaces
from tvm_droplet_ms.bench.training import read_space
from tvm_droplet_ms.cost_model.features.program_features import ProgramFeatures
from tvm_droplet_papers.cost_models import DataFlow, DataFlowStores, LoopTrees


def sample(definition: Definition, directory: Path, points: int = 48) -> Space:
    work, out = directory / "work", directory / f"{definition.name}.json"
    work.mkdir(exist_ok=True)
    name = f"replaying:{definition.name}"
    build_sample(definition, name, LLVM, work, out, points=points, passes=1, progress=silent)
    return Space.load(out)


def test_half_of_a_sample_is_random_and_half_better(made_up_times: None, tmp_path: Path):
    space = sample(tiled(), tmp_path)
    assert len(space.modules) == len(set(space.index)) == 48
    assert not space.closed
    times = {"random": [], "near": []}
    for origin, time in zip(space.origins, space.times, strict=True):
        times[origin].append(time)
    assert [len(times["random"]), len(times["near"])] == [24, 24]
    assert np.median(times["near"]) < np.median(times["random"])


def test_stopped_run_resumes(made_up_times: None, tmp_path: Path):
    whole = sample(tiled(), tmp_path)
    work = tmp_path / "work/log.jsonl"
    lines = work.read_text().splitlines(keepends=True)
    work.write_text("".join(lines[:-5]) + lines[-5][:7])
    assert sample(tiled(), tmp_path) == whole


def test_model_trains_on_sample(made_up_times: None, tmp_path: Path):
    space = sample(tiled(), tmp_path)
    workload = read_space(tmp_path / "tiled.json")
    assert workload.secs.tolist() == space.times
    assert len(np.unique(workload.features, axis=0)) > 24


def test_small_space_has_small_sample(
    made_up_times: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sampling, "MAX_DRAWS", 5)
    modules = len(enumerate_space(tiny().context(LLVM, "replay-trace")).modules)
    space = sample(tiny(), tmp_path, 2 * modules + 20)
    assert modules / 2 < len(space.modules) <= modules


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_has_a_space_to_sample(name: str):
    definition = find_definition(name)
    assert definition.name == name
    assert name not in DEFINITIONS
    sampler = Sampler(definition.context(LLVM, "replay-trace"), 0)
    drawn = [sampler.random() for _ in range(4)]
    assert len({found[1].module for found in drawn if found is not None}) >= 2


def test_command_writes_file_of_each(
    made_up_times: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = ["space", "sample", "replaying:tiled", "--points", "8", "--out", str(tmp_path / "s")]
    assert cli.main(command) == 0
    written = tmp_path / "s/tiled.json.gz"
    assert len(Space.load(written).modules) == 8
    assert list((tmp_path / "s").iterdir()) == [written]
    before = written.read_bytes()
    assert cli.main(command) == 0
    assert "is there already" in capsys.readouterr().out
    assert written.read_bytes() == before


def test_commands_name_what_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = tmp_path / "none"
    command = ["space", "sample", "matmul_square", "no-such", "--out", str(directory)]
    assert cli.main(command) == 1
    assert "'no-such'" in capsys.readouterr().err
    assert not directory.exists()
    assert cli.main(["space", "features", "no-such", "--out", str(tmp_path)]) == 1
    assert "no-such cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("name", shipped_samples())
def test_shipped_sample_is_of_this_tvm(name: str):
    file = find_space(name)
    space = Space.load(file)
    assert space.name == space.definition == name
    assert not space.closed
    assert sum(np.isfinite(space.times)) >= 32
    # Loading replays the traces and raises if a module differs.
    workload = read_space(file, most=2)
    assert len(workload.secs) == 2


def test_samples_are_not_spaces():
    assert not set(shipped_samples()) & set(shipped_spaces())
    layers = [name for name in shipped_samples() if not name.startswith("whole_")]
    assert sorted(layers) == sorted(LAYERS)
    targets = {json.dumps(Space.load(find_space(name)).target) for name in layers}
    assert len(targets) == 1


@pytest.mark.parametrize(
    ("model", "extractor"),
    [
        ("trees", ProgramFeatures),
        ("treegru", LoopTrees),
        ("pacm", DataFlow),
        ("pacm-stores", DataFlowStores),
    ],
)
def test_command_writes_features_and_times(
    model: str,
    extractor: type,
    made_up_times: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """One name selects all shipped files; files that are up to date are kept."""
    space = sample(tiled(), tmp_path, points=8)
    samples, spaces = tmp_path / "samples", tmp_path / "spaces"
    samples.mkdir()
    spaces.mkdir()
    (tmp_path / "tiled.json").rename(samples / "tiled.json")
    annotated_space().save(spaces / "annotated.json.gz")
    monkeypatch.setattr(measured, "SAMPLES", samples)
    monkeypatch.setattr(measured, "DIRECTORY", spaces)
    out = tmp_path / "out"
    command = ["space", "features", "shipped", "--model", model, "--out", str(out)]
    assert cli.main(command) == 0
    assert f"{out / 'tiled.npz'}: 8 records of tiled" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == ["annotated.npz", "tiled.npz"]
    with np.load(out / "tiled.npz") as content:
        assert set(content.files) == {"name", "target", "features", "secs", "schema"}
        assert str(content["name"]) == "tiled"
        assert str(content["schema"]) == extractor.schema
        assert content["features"].shape == (8, extractor().width)
        assert content["secs"].tolist() == space.times
    before = (out / "tiled.npz").stat().st_mtime_ns
    assert cli.main(command) == 0
    assert (out / "tiled.npz").stat().st_mtime_ns == before
