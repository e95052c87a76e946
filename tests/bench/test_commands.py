# SPDX-License-Identifier: Apache-2.0
"""The commands that make spaces, look at them, and compare on them."""

from pathlib import Path

import pytest
from replaying import annotated_space

from tvm_droplet_ms import cli
from tvm_droplet_ms.bench import space as measured
from tvm_droplet_ms.bench.compare import runs
from tvm_droplet_ms.bench.definition import DEFINITIONS
from tvm_droplet_ms.bench.layers import LAYERS
from tvm_droplet_ms.bench.making import building
from tvm_droplet_ms.bench.work_directory import claim


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package that ships one space, ``annotated``."""
    directory = tmp_path / "shipped"
    directory.mkdir()
    annotated_space().save(directory / "annotated.json")
    monkeypatch.setattr(measured, "DIRECTORY", directory)
    return directory


def test_show_prints_the_spaces_of_the_package_and_of_files(
    shipped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for files in ([], [str(shipped / "annotated.json")]):
        assert cli.main(["space", "show", *files]) == 0
        assert "| annotated " in capsys.readouterr().out
    (tmp_path / "bad.json").write_text("{}")
    assert cli.main(["space", "show", str(tmp_path / "bad.json")]) == 1
    assert "bad.json" in capsys.readouterr().err


def test_list_names_every_workload(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["space", "build", "list"]) == 0
    out = capsys.readouterr().out
    listed = {line.partition(":")[0] for line in out.splitlines()}
    assert listed == {name for name in DEFINITIONS if not name.startswith("whole_")}
    assert cli.main(["space", "sample", "list"]) == 0
    out = capsys.readouterr().out
    listed = {line.partition(":")[0] for line in out.splitlines()}
    assert listed == {*LAYERS, *(name for name in DEFINITIONS if name.startswith("whole_"))}


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["dens"], "'dens'"),
        (["whole_dense"], "space sample whole_dense"),
        (["dense", "--out", "/no/such/folder/dense.json"], "/no/such/folder"),
    ],
)
def test_build_names_its_error(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["space", "build", *arguments]) == 1
    assert named in capsys.readouterr().err


def test_build_passes_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    calls = []

    def build_space(definition, name, target, directory, out, *, passes, progress):
        claim(directory, {"workload": name})
        calls.append((definition.name, name, directory, out, passes))

    monkeypatch.setattr(building, "build_space", build_space)
    out = tmp_path / "mine.json"
    assert cli.main(["space", "build", "dense", "--out", str(out), "--passes", "7"]) == 0
    work = tmp_path / "mine.json.work"
    assert calls == [("dense", "dense", work, out, 7)]
    assert not work.exists()
    assert cli.main(["space", "build", "dense", "--out", str(out), "--keep"]) == 0
    assert work.exists()


def test_compare_prints_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    annotated_space().save(tmp_path / "annotated.json")
    arguments = ["--spaces", str(tmp_path / "annotated.json"), "--strategies", "replay-trace"]
    arguments += ["--trials", "8", "--seeds", "2", "--workers", "1", "--out", str(tmp_path / "out")]
    assert cli.main(["compare", *arguments]) == 0
    assert "| replay-trace " in capsys.readouterr().out
    assert (tmp_path / "out" / "tables.md").exists()


def test_compare_names_an_unknown_strategy(shipped: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["--strategies", "droplets", "--out", str(shipped)]
    assert cli.main(["compare", *arguments]) == 1
    assert "'droplets'" in capsys.readouterr().err


def test_all_is_without_the_held_out_spaces(shipped: Path, monkeypatch: pytest.MonkeyPatch):
    (shipped / "annotated.json").rename(shipped / "conv1d.json")
    annotated_space().save(shipped / "other.json")
    compared: list[list[Path]] = []
    monkeypatch.setattr(runs, "run_compare", lambda files, *_, **__: compared.append(files) or 0)
    for given in ("all", "held-out", "conv1d"):
        assert cli.main(["compare", "--spaces", given, "--out", "out"]) == 0
    held_out = shipped / "conv1d.json"
    assert compared == [[shipped / "other.json"], [held_out], [held_out]]


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_numbers_are_positive(text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        cli.main(["compare", f"--seeds={text}", "--out", "out"])
    assert end.value.code == 2
    assert repr(text) in capsys.readouterr().err


def test_package_names_its_spaces():
    assert measured.find_space("no-such-space") == Path("no-such-space")
    for name, path in measured.shipped_spaces().items():
        assert measured.find_space(name) == path
        assert path.exists()
